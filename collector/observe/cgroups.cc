#include "collector/observe/cgroups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/observe/small_file.h"

namespace gpuprobe::observe {
namespace {

std::optional<std::string> ReadMountInfo() {
  constexpr size_t kMost = size_t{1} << 20;
  const int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char bytes[16384];
  ssize_t n = 0;
  while (text.size() < kMost && (n = read(fd, bytes, sizeof(bytes))) > 0)
    text.append(bytes, static_cast<size_t>(n));
  close(fd);
  return text;
}

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

// Those of the group and of the groups above it, without the root.
std::vector<std::string> FoldersUp(const std::map<std::string, CgroupMount>& mounts,
                                   const std::map<std::string, std::string>& paths,
                                   const std::string& controller) {
  std::vector<std::string> folders;
  std::string folder = Folder(mounts, paths, controller);
  const size_t top = folder.empty() ? 0 : mounts.at(controller).point.size();
  while (folders.size() < Cgroups::kMostLevels && folder.size() > top) {
    folders.push_back(folder);
    folder.resize(folder.rfind('/'));
  }
  return folders;
}

struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* droppable;  // in memory.stat
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"/memory.max", "/memory.current", "inactive_file"},
    {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"},
};

std::optional<MemoryLimit> MemoryLimitOf(const std::string& folder) {
  const auto read = [&](const char* file) { return ReadSmallFile(absl::StrCat(folder, file)).value_or(""); };
  // Without a limit the older hierarchy has the largest number of pages.
  constexpr uint64_t kNoLimit = uint64_t{1} << 60;
  for (const MemoryFiles& files : kMemoryFiles) {
    const std::optional<uint64_t> limit = ParseNumber(read(files.limit));
    if (!limit.has_value() || *limit >= kNoLimit) continue;
    const uint64_t used = ParseNumber(read(files.used)).value_or(0);
    const uint64_t droppable = ParseKeyed(read("/memory.stat"), files.droppable).value_or(0);
    return MemoryLimit{.limit_bytes = *limit, .used_bytes = used - std::min(used, droppable)};
  }
  return std::nullopt;
}

std::optional<uint32_t> QuotaOf(const std::string& folder) {
  if (const auto text = ReadSmallFile(folder + "/cpu.max"); text.has_value()) return ParseCpuMax(*text);
  const auto quota = ReadSmallFile(folder + "/cpu.cfs_quota_us");
  const auto period = ReadSmallFile(folder + "/cpu.cfs_period_us");
  if (!quota.has_value() || !period.has_value() || !ParseNumber(*quota).has_value()) return std::nullopt;
  return ParseCpuMax(absl::StrCat(*quota, " ", *period));
}

}  // namespace

const std::map<std::string, CgroupMount>& CgroupMounts() {
  static const auto* mounts =
      new std::map<std::string, CgroupMount>(ParseCgroupMounts(ReadMountInfo().value_or("")));
  return *mounts;
}

Cgroups Cgroups::Open(const std::map<std::string, CgroupMount>& mounts,
                      const std::map<std::string, std::string>& paths) {
  Cgroups groups;
  groups.unified_ = Folder(mounts, paths, "");
  groups.freezer_ = Folder(mounts, paths, "freezer");
  groups.memory_ = Folder(mounts, paths, "memory");
  for (const char* controller : {"", "cpu"}) {
    for (const std::string& folder : FoldersUp(mounts, paths, controller)) {
      if (const auto quota = QuotaOf(folder); quota.has_value())
        groups.quotas_.push_back({.folder = folder, .millicpus = *quota});
    }
  }
  for (const char* controller : {"", "memory"}) {
    for (std::string& folder : FoldersUp(mounts, paths, controller))
      groups.memory_groups_.push_back(std::move(folder));
  }
  return groups;
}

std::optional<MemoryLimit> Cgroups::ReadMemoryLimit() const {
  std::optional<MemoryLimit> tightest;
  for (const std::string& folder : memory_groups_) {
    const std::optional<MemoryLimit> limit = MemoryLimitOf(folder);
    if (limit.has_value() && (!tightest.has_value() || limit->left_bytes() < tightest->left_bytes()))
      tightest = limit;
  }
  return tightest;
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
