#include "injector/core/own_thread.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "injector/base/memory_account.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kSmallestStackBytes = size_t{128} << 10;

constexpr int kNotYetRunning = -1;
constexpr timespec kBetweenLooks{0, 50'000};
constinit uint32_t never_woken = 0;

// From here on, a thread whose work is done is gone, and its id may be another thread's.
constexpr int64_t kSurelyGoneSeconds = 60;

struct OwnThread {
  void* (*main)(void*);
  void* argument;
  std::atomic<int> id;                // the kernel's; 0: was not started
  std::atomic<int64_t> done_seconds;  // CLOCK_MONOTONIC, when its work was done; 0: not yet
};
constinit OwnThread threads[kMaxOwnThreads] = {};
constinit std::atomic<int> threads_claimed{0};

int64_t MonotonicSeconds() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) + 1;
}

void* Main(void* self) noexcept {
  auto* thread = static_cast<OwnThread*>(self);
  thread->id.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_release);
  void* const result = thread->main(thread->argument);
  ReleaseMemory(kStackBytes);
  thread->done_seconds.store(MonotonicSeconds(), std::memory_order_relaxed);
  return result;
}

bool IsThere(const OwnThread& thread) noexcept {
  const int id = thread.id.load(std::memory_order_acquire);
  const int64_t done = thread.done_seconds.load(std::memory_order_relaxed);
  if (done != 0 && MonotonicSeconds() - done > kSurelyGoneSeconds) return false;
  return id == kNotYetRunning || (id != 0 && syscall(SYS_tgkill, getpid(), id, 0) == 0);
}

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
  const int index = threads_claimed.fetch_add(1, std::memory_order_relaxed);
  if (index >= kMaxOwnThreads || !ChargeMemory(kStackBytes, MemoryUse::kNeeded)) return false;
  OwnThread& own = threads[index];
  own.main = main;
  own.argument = argument;
  own.id.store(kNotYetRunning, std::memory_order_relaxed);
  pthread_attr_t attributes;
  bool started = false;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    // Where address space is short, a smaller stack does.
    for (size_t bytes = kStackBytes; !started && bytes >= kSmallestStackBytes; bytes /= 2) {
      pthread_t thread{};
      pthread_attr_setstacksize(&attributes, bytes);
      started = pthread_create(&thread, &attributes, Main, &own) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
  }
  if (!started) {
    ReleaseMemory(kStackBytes);
    own.id.store(0, std::memory_order_relaxed);
  }
  return started;
}

bool AwaitOwnThreadsEnd(int milliseconds) noexcept {
  constexpr int kLooksInAMillisecond = 20;
  for (int looks = 0;; ++looks) {
    bool any = false;
    for (const OwnThread& thread : threads) any = any || IsThere(thread);
    if (!any) return true;
    if (looks >= milliseconds * kLooksInAMillisecond) return false;
    // Nobody wakes it: a sleep that the kernel times, whatever the program makes of the C library's.
    syscall(SYS_futex, &never_woken, FUTEX_WAIT_PRIVATE, 0, &kBetweenLooks, nullptr, 0);
  }
}

void BecomeOwnThread() noexcept {
  RunAtOrdinaryPriority();
  RunOnAnyProcessor();
  prctl(PR_SET_NAME, "gpuprobe", 0, 0, 0);
  CurrentThread().open_guard.store(&kNoEntry, std::memory_order_relaxed);
}

}  // namespace gpuprobe::injector
