// Background threads: a low priority, so that recording goes first where processors are scarce, and the
// processor time that their work costs.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ctime>

namespace gpuprobe::http {

// Lowers the calling thread's priority for good, and keeps SIGPIPE from it: OpenSSL writes to sockets whose
// other end has gone. On Linux a thread has a nice value of its own.
inline void RunInBackground() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

// Processor time of the calling thread. Unlike wall time, it leaves out waiting for a processor.
inline std::chrono::nanoseconds ThreadTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace gpuprobe::http
