#include "collector/observe/gpu_processes.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "stacks/mapped_objects.h"

namespace gpuprobe::observe {
namespace {

namespace fs = std::filesystem;

constexpr char kControlDevice[] = "/dev/nvidiactl";

// nullopt: it may not be known.
std::optional<bool> MapsDriver(pid_t pid) {
  stacks::Mappings mappings(pid);
  if (!mappings.opened()) return std::nullopt;
  stacks::Mapping mapping;
  bool any = false;
  while (mappings.Next(mapping)) {
    any = true;
    const size_t slash = mapping.path.rfind('/');
    if (slash != std::string_view::npos && mapping.path.substr(slash + 1).starts_with("libcuda.so"))
      return true;
  }
  // Another user's file can be opened, and is empty; so is that of a kernel thread, which has no program.
  if (any) return false;
  std::error_code error;
  const fs::path program = fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error);
  return program.empty() && error == std::errc::permission_denied ? std::nullopt : std::optional(false);
}

// Has it initialised CUDA? Where there is no such device (in a container it may have another name), who maps
// the driver counts.
bool HasDeviceOpen(pid_t pid) {
  std::error_code error;
  if (!fs::exists(kControlDevice, error)) return true;
  for (const fs::directory_entry& entry : fs::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), error)) {
    std::error_code ignored;
    if (fs::read_symlink(entry.path(), ignored).string().starts_with("/dev/nvidia")) return true;
  }
  return false;
}

std::string ProgramOf(pid_t pid) {
  std::error_code error;
  return fs::read_symlink(absl::StrCat("/proc/", pid, "/exe"), error).string();
}

pid_t ParentOf(pid_t pid) {
  const std::optional<std::string> text = ReadSmallFile(absl::StrCat("/proc/", pid, "/status"));
  const std::optional<ProcStatus> status = text.has_value() ? ParseStatus(*text) : std::nullopt;
  return status.has_value() ? static_cast<pid_t>(status->parent) : 0;
}

}  // namespace

GpuProcesses FindGpuProcesses() {
  GpuProcesses out;
  const std::string own = ProgramOf(getpid());
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failed != std::errc() || end != name.data() + name.size()) continue;
    const std::optional<bool> maps = MapsDriver(pid);
    if (!maps.has_value()) ++out.unreadable;
    if (!maps.value_or(false) || !HasDeviceOpen(pid)) continue;
    std::string program = ProgramOf(pid);
    if (program != own)
      out.found.push_back({.pid = pid, .parent = ParentOf(pid), .program = std::move(program)});
  }
  std::sort(out.found.begin(), out.found.end(),
            [](const GpuProcess& a, const GpuProcess& b) { return a.pid < b.pid; });
  return out;
}

std::optional<uint64_t> CpuTimeNs(pid_t pid) {
  const std::optional<std::string> text = ReadSmallFile(absl::StrCat("/proc/", pid, "/stat"));
  const std::optional<ProcStat> stat = text.has_value() ? ParseStat(*text) : std::nullopt;
  if (!stat.has_value()) return std::nullopt;
  return stat->cpu_ticks * 1'000'000'000 / static_cast<uint64_t>(std::max(sysconf(_SC_CLK_TCK), 1L));
}

}  // namespace gpuprobe::observe
