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

// A page of its own: the kernel zeroes it (MADV_WIPEONFORK) in every child that copies our memory, whether by
// fork(), _Fork() or clone(). A zero page reads as Off, so the guard admits nothing there and need not
// compare process ids.
struct alignas(4096) LifecyclePage {
  std::atomic<int32_t> state{0};     // LifecycleState
  std::atomic<int32_t> original{0};  // 1 where WatchForks was called, 0 in the children
  std::atomic<void*> shared_ring{
      nullptr};  // the flight recorder's (core/flight_recorder.h): no child writes to it
};
extern LifecyclePage lifecycle_page;

inline LifecycleState CurrentLifecycle() noexcept {
  return static_cast<LifecycleState>(lifecycle_page.state.load(std::memory_order_relaxed));
}

// Moves from `from` to `to` and says whether it did: the state was `from`, and the move is one that the class
// comment allows.
bool Transition(LifecycleState from, LifecycleState to) noexcept;

// Closes from any state: the guard admits nothing any more. Idempotent.
void CloseLifecycle() noexcept;

// From here on a child that has a copy of our memory, and none of our threads, is closed for good and never
// sends, and fork() waits for our threads to leave the linker's list (loaded_objects.h). On kernels before
// 4.14 a fork handler closes the child, which _Fork() and clone() bypass. False when there is not even memory
// for the handlers; the caller then stays Off.
bool WatchForks() noexcept;

// True in a process that was forked from one where the probe ran.
bool InForkedChild() noexcept;

// False in any child, even one that shares our memory (vfork, clone): work at exit is left to the parent.
// Makes a system call.
bool InWatchedProcess() noexcept;

}  // namespace gpuprobe::injector
