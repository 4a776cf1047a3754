// Parsers for the kernel's text files under /proc and /sys/fs/cgroup. Pure.
//
// A process chooses its own name and its cgroup's path, so every field is searched for where the process
// cannot forge it: "(a) R 1" is a valid name. Unreadable values are absent, never zero.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::observe {

// /proc/PID/stat
struct ProcStat {
  char state = 0;
  uint64_t major_faults = 0;
  uint64_t cpu_ticks = 0;  // of all threads
  uint64_t threads = 0;
  // The status that wait() would return if the process has ended; the signal that stopped it otherwise.
  int32_t exit_code = 0;
};
std::optional<ProcStat> ParseStat(std::string_view text);

// /proc/PID/task/TID/schedstat
struct SchedStat {
  uint64_t run_ns = 0;
  uint64_t delay_ns = 0;  // ready to run, and not running
};
std::optional<SchedStat> ParseSchedStat(std::string_view text);

// /proc/PID/status
struct ProcStatus {
  std::vector<uint32_t> pids;  // in each namespace, from /proc's to the process's own
  uint32_t parent = 0;         // in /proc's namespace; 0: not known, or outside it
  uint32_t tracer = 0;         // 0: none
  uint32_t user = 0;           // effective
  uint64_t swapped_bytes = 0;
};
std::optional<ProcStatus> ParseStatus(std::string_view text);

// /proc/PID/syscall of a thread that sleeps: its number and first argument.
struct SystemCall {
  int64_t number = 0;
  uint64_t first = 0;
};
std::optional<SystemCall> ParseSystemCall(std::string_view text);

// /proc/PID/cgroup: path by controller; "" for the unified hierarchy.
std::map<std::string, std::string> ParseCgroups(std::string_view text);

// /proc/self/mountinfo: where a hierarchy is mounted, by controller as above.
struct CgroupMount {
  std::string root;  // path of the group that is mounted
  std::string point;
};
std::map<std::string, CgroupMount> ParseCgroupMounts(std::string_view text);

// Value of a line "name value", as cpu.stat, cgroup.events and memory.events have them.
std::optional<uint64_t> ParseKeyed(std::string_view text, std::string_view name);
// A file that holds one number; "-1" and "max" are absent.
std::optional<uint64_t> ParseNumber(std::string_view text);
// cpu.max, "150000 100000": 1500; absent without a quota.
std::optional<uint32_t> ParseCpuMax(std::string_view text);
// memory.pressure: the total of the line "full", in microseconds.
std::optional<uint64_t> ParseFullStall(std::string_view text);

}  // namespace gpuprobe::observe
