// What /proc says about a process, read without allocating.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace gpuprobe::cli {

struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
  uint64_t start_ticks = 0;  // since boot
};

// State '?' and zeros for a process that has gone.
ProcessStat StatOf(pid_t pid);
// By a signal; not by a debugger.
inline bool IsStopped(pid_t pid) { return StatOf(pid).state == 'T'; }

}  // namespace gpuprobe::cli
