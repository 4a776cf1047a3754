// Threads that nobody waits for: their priority, since recording goes first where processors are short, and
// what work costs.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <ctime>

namespace gpuprobe::http {

// The calling thread from now on. On Linux a thread has a nice value of its own.
inline void RunInBackground() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

// What the calling thread has used of a processor. Unlike the clock it does not count what others made it
// wait.
inline std::chrono::nanoseconds ThreadTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace gpuprobe::http
