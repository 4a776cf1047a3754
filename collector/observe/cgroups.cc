#include "collector/observe/cgroups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collector/observe/small_file.h"

namespace gpuprobe::observe {
namespace {

// Folder of a group, if its hierarchy is mounted and the mount includes the group.
std::string Folder(const std::map<std::string, CgroupMount>& mounts,
                   const std::map<std::string, std::string>& paths, const std::string& controller) {
  const auto mount = mounts.find(controller);
  const auto path = paths.find(controller);
  if (mount == mounts.end() || path == paths.end()) return "";
  if (path->second.find("/..") != std::string::npos) return "";  // outside of our namespace's root
  const std::string& root = mount->second.root;
  if (root == "/") return absl::StrCat(mount->second.point, path->second == "/" ? "" : path->second);
  if (path->second == root || path->second.starts_with(root + "/"))
    return absl::StrCat(mount->second.point, path->second.substr(root.size()));
  return "";
}

std::optional<uint32_t> QuotaOf(const std::string& folder) {
  if (const auto text = ReadSmallFile(folder + "/cpu.max"); text.has_value()) return ParseCpuMax(*text);
  const auto quota = ReadSmallFile(folder + "/cpu.cfs_quota_us");
  const auto period = ReadSmallFile(folder + "/cpu.cfs_period_us");
  if (!quota.has_value() || !period.has_value() || !ParseNumber(*quota).has_value()) return std::nullopt;
  return ParseCpuMax(absl::StrCat(*quota, " ", *period));
}

}  // namespace

Cgroups Cgroups::Open(const std::map<std::string, CgroupMount>& mounts,
                      const std::map<std::string, std::string>& paths) {
  Cgroups groups;
  groups.unified_ = Folder(mounts, paths, "");
  groups.freezer_ = Folder(mounts, paths, "freezer");
  groups.memory_ = Folder(mounts, paths, "memory");
  for (const char* controller : {"", "cpu"}) {
    std::string folder = Folder(mounts, paths, controller);
    if (folder.empty()) continue;
    const size_t top = mounts.at(controller).point.size();
    for (size_t level = 0; level < kMostLevels && folder.size() > top; ++level) {
      if (const auto quota = QuotaOf(folder); quota.has_value())
        groups.quotas_.push_back({.folder = folder, .millicpus = *quota});
      folder.resize(folder.rfind('/'));
    }
  }
  return groups;
}

CgroupReading Cgroups::Read() const {
  CgroupReading reading;
  const auto read = [](const std::string& folder, const char* file) {
    return folder.empty() ? std::string() : ReadSmallFile(absl::StrCat(folder, file)).value_or("");
  };
  reading.frozen = ParseKeyed(read(unified_, "/cgroup.events"), "frozen").value_or(0) != 0 ||
                   read(freezer_, "/freezer.state").starts_with("FROZEN");
  for (const Quota& quota : quotas_) {
    const std::string stat = read(quota.folder, "/cpu.stat");
    const uint64_t throttled = ParseKeyed(stat, "nr_throttled").value_or(0);
    if (reading.quota_millicpus == 0 || quota.millicpus < reading.quota_millicpus)
      reading.quota_millicpus = std::max(quota.millicpus, 1U);
    if (reading.quota_periods != 0 && throttled <= reading.throttled_periods) continue;
    reading.throttled_periods = throttled;
    reading.quota_periods = ParseKeyed(stat, "nr_periods").value_or(0);
  }
  reading.memory_stall_us = ParseFullStall(read(unified_, "/memory.pressure"));
  if (!reading.memory_stall_us.has_value())
    reading.memory_stall_us = ParseFullStall(ReadSmallFile("/proc/pressure/memory").value_or(""));
  reading.oom_kills = ParseKeyed(read(unified_, "/memory.events"), "oom_kill").value_or(0) +
                      ParseKeyed(read(memory_, "/memory.oom_control"), "oom_kill").value_or(0);
  return reading;
}

}  // namespace gpuprobe::observe
