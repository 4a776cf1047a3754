// The probe's state, and the only place that changes it: Off -> Starting -> Live -> (Yielded -> Live) ->
// Closed.
//
// The guard reads it with one relaxed load, and it depends on nothing else (probe.h does the starting).
// Thread: any. Allocation: none. Failure: a transition that is not allowed is refused and changes nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

enum class LifecycleState : int32_t {
  kOff,       // nothing runs: not started, disabled, or it could not start
  kStarting,  // memory is mapped, CUPTI is subscribed; callbacks are not let in yet
  kLive,      // events are taken
  kYielded,   // another tool has CUPTI; the thread still runs
  kClosed,    // for good: exit, collector gone, or a forked child
};

// A page of its own, because the kernel can be told to hand an empty one to every child that gets a copy of
// our memory, however it was made: fork(), _Fork(), clone(). There the state reads Off, which lets nothing
// in, and it costs the guard no look at the process id.
struct alignas(4096) LifecyclePage {
  std::atomic<int32_t> state{0};     // LifecycleState
  std::atomic<int32_t> original{0};  // 1 where WatchForks was called, 0 in the children
};
extern LifecyclePage lifecycle_page;

inline LifecycleState CurrentLifecycle() noexcept {
  return static_cast<LifecycleState>(lifecycle_page.state.load(std::memory_order_relaxed));
}

// Moves from `from` to `to` and says whether it did: the state was `from`, and the move is one that the class
// comment allows.
bool Transition(LifecycleState from, LifecycleState to) noexcept;

// Whatever the state was, nothing is let in any more. Idempotent.
void CloseLifecycle() noexcept;

// From here on a child that has a copy of our memory, and none of our threads, is closed for good and never
// sends. On kernels before 4.14 that is a fork handler, which _Fork() and clone() pass by. False when there
// is not even memory for the handler; the caller then stays Off.
bool WatchForks() noexcept;

// True in a process that was forked from one where the probe ran.
bool InForkedChild() noexcept;

// False in any child, also in one that shares our memory (vfork, clone): what is done at exit is the
// parent's. Asks the kernel.
bool InWatchedProcess() noexcept;

// Back to Off, for unit tests, which run many lives in one process.
void ResetLifecycleForTest() noexcept;

}  // namespace gpuprobe::injector
