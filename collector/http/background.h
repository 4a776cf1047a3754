// The priority of threads that nobody waits for: recording goes first where processors are short.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace gpuprobe::http {

// The calling thread from now on. On Linux a thread has a nice value of its own.
inline void RunInBackground() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
}

}  // namespace gpuprobe::http
