#include "injector/core/own_thread.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <csignal>
#include <cstddef>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kSmallestStackBytes = size_t{128} << 10;

}  // namespace

bool StartOwnThread(void* (*main)(void*), void* argument) noexcept {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  bool started = false;
  // Where address space is short, a smaller stack does.
  for (size_t bytes = kStackBytes; !started && bytes >= kSmallestStackBytes; bytes /= 2) {
    pthread_t thread{};
    pthread_attr_setstacksize(&attributes, bytes);
    started = pthread_create(&thread, &attributes, main, argument) == 0;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

void BecomeOwnThread() noexcept {
  prctl(PR_SET_NAME, "gpuprobe", 0, 0, 0);
  CurrentThread().guard_depth = 1;
}

}  // namespace gpuprobe::injector
