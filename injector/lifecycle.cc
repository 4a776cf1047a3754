#include "injector/lifecycle.h"

#include <pthread.h>

namespace gpuprobe::injector {

constinit std::atomic<int32_t> lifecycle_state{static_cast<int32_t>(LifecycleState::kOff)};

namespace {

constinit std::atomic<bool> forked_child{false};
constinit std::atomic<bool> fork_handler_registered{false};

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
  forked_child.store(true, std::memory_order_relaxed);
  CloseLifecycle();
}

}  // namespace

bool Transition(LifecycleState from, LifecycleState to) noexcept {
  if (!Allowed(from, to)) return false;
  auto expected = static_cast<int32_t>(from);
  return lifecycle_state.compare_exchange_strong(expected, static_cast<int32_t>(to),
                                                 std::memory_order_acq_rel);
}

void CloseLifecycle() noexcept {
  lifecycle_state.store(static_cast<int32_t>(LifecycleState::kClosed), std::memory_order_release);
}

bool WatchForks() noexcept {
  if (fork_handler_registered.exchange(true)) return true;
  if (pthread_atfork(nullptr, nullptr, MarkChild) == 0) return true;
  fork_handler_registered.store(false);
  return false;
}

bool InForkedChild() noexcept { return forked_child.load(std::memory_order_relaxed); }

void ResetLifecycleForTest() noexcept {
  lifecycle_state.store(static_cast<int32_t>(LifecycleState::kOff), std::memory_order_release);
}

}  // namespace gpuprobe::injector
