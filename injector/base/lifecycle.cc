#include "injector/base/lifecycle.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/base/loaded_objects.h"

namespace gpuprobe::injector {

static_assert(static_cast<int32_t>(LifecycleState::kOff) == 0);
constinit LifecyclePage lifecycle_page;

namespace {

constinit std::atomic<bool> forked_child{false};
constinit std::atomic<bool> watched{false};
constinit std::atomic<pid_t> watched_process{0};

pid_t ProcessId() noexcept { return static_cast<pid_t>(syscall(SYS_getpid)); }

bool Allowed(LifecycleState from, LifecycleState to) noexcept {
  switch (from) {
    case LifecycleState::kOff:
      return to == LifecycleState::kStarting;
    case LifecycleState::kStarting:
      return to == LifecycleState::kLive || to == LifecycleState::kOff || to == LifecycleState::kClosed;
    case LifecycleState::kLive:
      return to == LifecycleState::kYielded || to == LifecycleState::kClosed;
    case LifecycleState::kYielded:
      return to == LifecycleState::kLive || to == LifecycleState::kClosed;
    case LifecycleState::kClosed:
      return false;
  }
  return false;
}

// Runs in the child, between fork() and its return: only stores.
void MarkChild() noexcept {
  AfterForkInChild();
  forked_child.store(true, std::memory_order_relaxed);
  CloseLifecycle();
}

}  // namespace

bool Transition(LifecycleState from, LifecycleState to) noexcept {
  if (!Allowed(from, to) || InForkedChild()) return false;
  auto expected = static_cast<int32_t>(from);
  return lifecycle_page.state.compare_exchange_strong(expected, static_cast<int32_t>(to),
                                                      std::memory_order_acq_rel);
}

void CloseLifecycle() noexcept {
  lifecycle_page.state.store(static_cast<int32_t>(LifecycleState::kClosed), std::memory_order_release);
}

bool WatchForks() noexcept {
  if (watched.load(std::memory_order_relaxed)) return true;
  lifecycle_page.original.store(1, std::memory_order_relaxed);
  watched_process.store(ProcessId(), std::memory_order_relaxed);
  madvise(&lifecycle_page, sizeof(lifecycle_page), MADV_WIPEONFORK);
  if (pthread_atfork(BeforeFork, AfterForkInParent, MarkChild) != 0) return false;
  watched.store(true, std::memory_order_release);
  return true;
}

bool InForkedChild() noexcept {
  return forked_child.load(std::memory_order_relaxed) ||
         (watched.load(std::memory_order_relaxed) &&
          lifecycle_page.original.load(std::memory_order_relaxed) == 0);
}

bool InWatchedProcess() noexcept {
  return !InForkedChild() && watched_process.load(std::memory_order_relaxed) == ProcessId();
}

}  // namespace gpuprobe::injector
