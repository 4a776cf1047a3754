#include "injector/core/own_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kSmallestStackBytes = size_t{128} << 10;

// A thread begins with the priority and the processors of the one that started it, which may be the
// program's real-time thread on the core that is kept free for it.
void RunAtOrdinaryPriority() noexcept {
  const int policy = sched_getscheduler(0);
  const int kind = policy & ~SCHED_RESET_ON_FORK;
  if (policy >= 0 && kind != SCHED_OTHER && kind != SCHED_BATCH && kind != SCHED_IDLE) {
    const sched_param ordinary{};
    sched_setscheduler(0, SCHED_OTHER | (policy & SCHED_RESET_ON_FORK), &ordinary);
  }
  const auto thread = static_cast<id_t>(syscall(SYS_gettid));
  if (getpriority(PRIO_PROCESS, thread) < 0) setpriority(PRIO_PROCESS, thread, 0);
}

// All that the process may use: the kernel leaves out those that its cpuset does not have.
void RunOnAnyProcessor() noexcept {
  unsigned char all[1024];  // 8,192 processors
  std::memset(all, 0xff, sizeof(all));
  sched_setaffinity(0, sizeof(all), reinterpret_cast<const cpu_set_t*>(all));
}

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
  RunAtOrdinaryPriority();
  RunOnAnyProcessor();
  prctl(PR_SET_NAME, "gpuprobe", 0, 0, 0);
  CurrentThread().open_guard.store(&kNoEntry, std::memory_order_relaxed);
}

}  // namespace gpuprobe::injector
