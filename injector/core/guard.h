// The only way into the probe from the application's threads.
//
// Every exported function, callback and intercepted call opens a Guard and does its work only if the guard
// let it in: the probe is live, this process is the one that started it (not a forked child), and the thread
// is not already inside the probe. Code under a guard is noexcept, and errno is preserved. Thread: any
// application thread. Allocation: none. Failure: the guard does not let the caller in; the application's own
// work goes on.
#pragma once

#include <cerrno>
#include <cstdint>

#include "injector/base/lifecycle.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

class Guard {
 public:
  // Enters if possible. Costs one relaxed atomic load when the probe is off.
  Guard() noexcept {
    if (CurrentLifecycle() != LifecycleState::kLive) return;
    ThreadState& state = CurrentThread();
    if (state.guard_depth != 0) return;
    state.guard_depth = 1;
    state_ = &state;
    saved_errno_ = errno;
    const uint64_t events = state.host_events.load(std::memory_order_relaxed);
    state.host_events.store(events + 1, std::memory_order_relaxed);
    // Not the first of a thread: that one pays for page faults that no other pays.
    if (events % kHostCostSampling == kHostCostSampling - 1) StartSample();
  }
  ~Guard() {
    if (state_ == nullptr) return;
    if (state_->sample_start_ns != 0) EndSample();
    state_->guard_depth = 0;
    errno = saved_errno_;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  ThreadState& thread() const noexcept { return *state_; }

 private:
  void StartSample() noexcept;
  void EndSample() noexcept;

  ThreadState* state_ = nullptr;
  int saved_errno_ = 0;
};

// CLOCK_REALTIME in nanoseconds, the clock of CUPTI's records. 22 ns a call where this was measured (vDSO).
uint64_t NowNs() noexcept;

}  // namespace gpuprobe::injector
