// The probe's state, and the only place that changes it: Off -> Starting -> Live -> (Yielded -> Live) ->
// Closed.
//
// Separate from what it starts (probe.h) so that the guard can look at it with one relaxed load and depend on
// nothing else. Thread: any. Allocation: none. Failure: a transition that is not allowed is refused and
// changes nothing.
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

// Read by every guard. Written by Transition and by the fork handler only.
extern std::atomic<int32_t> lifecycle_state;

inline LifecycleState CurrentLifecycle() noexcept {
  return static_cast<LifecycleState>(lifecycle_state.load(std::memory_order_relaxed));
}

// Moves from `from` to `to` and says whether it did: the state was `from`, and the move is one that the class
// comment allows.
bool Transition(LifecycleState from, LifecycleState to) noexcept;

// Whatever the state was, nothing is let in any more. Idempotent.
void CloseLifecycle() noexcept;

// Registers the fork handler once: a child that fork() made has our memory without our thread; it is closed
// for good and never sends. False when the C library has no memory for the handler; the caller then stays
// Off.
bool WatchForks() noexcept;

// True in a process that was forked from one where the probe ran.
bool InForkedChild() noexcept;

// Back to Off, for unit tests, which run many lives in one process.
void ResetLifecycleForTest() noexcept;

}  // namespace gpuprobe::injector
