#include "collector/observe/proc_text.h"

#include <algorithm>
#include <charconv>

namespace gpuprobe::observe {
namespace {

using Fields = std::vector<std::string_view>;

constexpr size_t kMostPids = 32;  // the kernel nests namespaces that deep

// Splits at characters of `separators`; empty parts are left out.
Fields Parts(std::string_view text, std::string_view separators) {
  Fields parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}
Fields Words(std::string_view text) { return Parts(text, " \t\n"); }
Fields Lines(std::string_view text) { return Parts(text, "\n"); }

template <typename T>
std::optional<T> Number(std::string_view text, int base = 10) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Paths in mountinfo have blanks as \040.
std::string Unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
    if (rest.size() >= 4 && rest[0] == '\\' && is_octal(rest[1]) && is_octal(rest[2]) && is_octal(rest[3])) {
      out.push_back(static_cast<char>((rest[1] - '0') * 64 + (rest[2] - '0') * 8 + (rest[3] - '0')));
      i += 3;
    } else {
      out.push_back(rest[0]);
    }
  }
  return out;
}

}  // namespace

std::optional<ProcStat> ParseStat(std::string_view text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  const Fields fields = Words(text.substr(name_end + 1));  // the first is field 3 of proc(5)
  constexpr size_t kLeast = 18;
  if (fields.size() < kLeast || fields[0].size() != 1) return std::nullopt;
  const auto majflt = Number<uint64_t>(fields[9]);
  const auto utime = Number<uint64_t>(fields[11]);
  const auto stime = Number<uint64_t>(fields[12]);
  const auto threads = Number<uint64_t>(fields[17]);
  if (!majflt.has_value() || !utime.has_value() || !stime.has_value() || !threads.has_value())
    return std::nullopt;
  ProcStat stat{
      .state = fields[0][0], .major_faults = *majflt, .cpu_ticks = *utime + *stime, .threads = *threads};
  constexpr size_t kExitCode = 49;
  if (fields.size() > kExitCode) stat.exit_code = Number<int32_t>(fields[kExitCode]).value_or(0);
  return stat;
}

std::optional<SchedStat> ParseSchedStat(std::string_view text) {
  const Fields fields = Words(text);
  if (fields.size() < 3) return std::nullopt;
  const auto run = Number<uint64_t>(fields[0]);
  const auto delay = Number<uint64_t>(fields[1]);
  if (!run.has_value() || !delay.has_value()) return std::nullopt;
  return SchedStat{.run_ns = *run, .delay_ns = *delay};
}

std::optional<ProcStatus> ParseStatus(std::string_view text) {
  ProcStatus status;
  std::optional<uint32_t> pid;
  // The name comes first, and the kernel escapes line feeds in it.
  for (const std::string_view line : Lines(text)) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, colon);
    const Fields values = Words(line.substr(colon + 1));
    if (values.empty()) continue;
    if (name == "Pid" && !pid.has_value()) pid = Number<uint32_t>(values[0]);
    if (name == "PPid") status.parent = Number<uint32_t>(values[0]).value_or(0);
    if (name == "Uid" && values.size() > 1) status.user = Number<uint32_t>(values[1]).value_or(0);
    if (name == "TracerPid") status.tracer = Number<uint32_t>(values[0]).value_or(0);
    if (name == "VmSwap") status.swapped_bytes = Number<uint32_t>(values[0]).value_or(0) * uint64_t{1024};
    if (name != "NSpid") continue;
    for (size_t i = 0; i < std::min(values.size(), kMostPids); ++i)
      status.pids.push_back(Number<uint32_t>(values[i]).value_or(0));
  }
  if (status.pids.empty() && pid.has_value()) status.pids.push_back(*pid);  // before Linux 4.1
  if (status.pids.empty()) return std::nullopt;
  return status;
}

std::optional<SystemCall> ParseSystemCall(std::string_view text) {
  const Fields fields = Words(text);
  if (fields.size() < 2 || !fields[1].starts_with("0x")) return std::nullopt;  // "running", or "-1 sp pc"
  const auto number = Number<int64_t>(fields[0]);
  const auto first = Number<uint64_t>(fields[1].substr(2), 16);
  if (!number.has_value() || *number < 0 || !first.has_value()) return std::nullopt;
  return SystemCall{.number = *number, .first = *first};
}

std::map<std::string, std::string> ParseCgroups(std::string_view text) {
  std::map<std::string, std::string> paths;
  for (const std::string_view line : Lines(text)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', std::min(first, line.size() - 1) + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string path(line.substr(second + 1));
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (!path.starts_with("/")) continue;
    if (controllers.empty()) paths.try_emplace("", path);
    for (const std::string_view controller : Parts(controllers, ","))
      paths.try_emplace(std::string(controller), path);
  }
  return paths;
}

std::map<std::string, CgroupMount> ParseCgroupMounts(std::string_view text) {
  std::map<std::string, CgroupMount> mounts;
  for (const std::string_view line : Lines(text)) {
    const Fields fields = Words(line);
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 6 || fields.end() - dash < 4) continue;
    const CgroupMount mount{.root = Unescape(fields[3]), .point = Unescape(fields[4])};
    if (dash[1] == "cgroup2") mounts.try_emplace("", mount);
    if (dash[1] != "cgroup") continue;
    for (const std::string_view option : Parts(dash[3], ",")) mounts.try_emplace(std::string(option), mount);
  }
  return mounts;
}

std::optional<uint64_t> ParseKeyed(std::string_view text, std::string_view name) {
  for (const std::string_view line : Lines(text)) {
    const Fields words = Words(line);
    if (words.size() == 2 && words[0] == name) return Number<uint64_t>(words[1]);
  }
  return std::nullopt;
}

std::optional<uint64_t> ParseNumber(std::string_view text) {
  const Fields words = Words(text);
  return words.size() == 1 ? Number<uint64_t>(words[0]) : std::nullopt;
}

std::optional<uint32_t> ParseCpuMax(std::string_view text) {
  const Fields words = Words(text);
  if (words.size() != 2) return std::nullopt;
  const auto quota = Number<uint64_t>(words[0]);
  const auto period = Number<uint64_t>(words[1]);
  constexpr uint64_t kMostUs = uint64_t{1} << 50;
  if (!quota.has_value() || !period.has_value() || *period == 0 || *quota > kMostUs) return std::nullopt;
  return static_cast<uint32_t>(std::min<uint64_t>(*quota * 1000 / *period, UINT32_MAX));
}

std::optional<uint64_t> ParseFullStall(std::string_view text) {
  constexpr std::string_view kTotal = "total=";
  for (const std::string_view line : Lines(text)) {
    const Fields words = Words(line);
    if (words.empty() || words[0] != "full" || !words.back().starts_with(kTotal)) continue;
    return Number<uint64_t>(words.back().substr(kTotal.size()));
  }
  return std::nullopt;
}

}  // namespace gpuprobe::observe
