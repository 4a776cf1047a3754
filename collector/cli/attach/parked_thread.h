// Finds a thread of a process that may make another thread for us: one that waits in a system call, and holds
// no lock that pthread_create or malloc needs.
//
// What a thread is in the middle of is read from its stack, after it was stopped for some tens of
// microseconds and let go (observe/thread_copy.h). Refused are allocators, the dynamic loader, functions that
// make and end threads and processes, signal handlers, and code that no file describes. A thread that waits
// in CUDA's libraries is taken only if there is no other: it makes a thread and does nothing else, so what it
// holds there does not matter.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::cli::attach {

// Whether it can begin anew, or go on, after it was interrupted.
bool MayInterrupt(int64_t system_call);

struct ParkedThread {
  // Where on its stack the return address of each call is. While they and the two registers are the same, it
  // waits in the same place.
  struct Return {
    uint64_t at = 0;
    uint64_t address = 0;
  };
  pid_t tid = 0;
  uint64_t rip = 0;
  uint64_t rsp = 0;
  std::vector<Return> returns;
};

// Hands suitable threads to `use`, in one round after the other, until it returns true or `until`. The reason
// why there was none; nullopt: one was used.
std::optional<std::string> FindParkedThread(pid_t pid, std::chrono::steady_clock::time_point until,
                                            const std::function<bool(const ParkedThread&)>& use);

}  // namespace gpuprobe::cli::attach
