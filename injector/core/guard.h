// The only way into the probe from the application's threads.
//
// Every exported function, callback and intercepted call opens a Guard and does its work only if the guard
// let it in: the probe is live, this process is the one that started it (not a forked child), and the thread
// is not already inside the probe. Code under a guard is noexcept, and errno is preserved.
//
// A thread that is already inside is normally in a signal handler that interrupted our code; what it would
// have recorded is counted as lost. But a handler may also have left our code for good, by siglongjmp: then
// the guard never closes. It is known to be dead when a new guard has its place on the stack, when its place
// holds something else by now, or when it lies below the frames that are in use. Example: a handler jumps
// from nvtxRangePush into main's loop, and the next nvtxRangePush of the loop goes on as if nothing had
// happened.
//
// Thread: any application thread. Allocation: none. Failure: the guard does not let the caller in; the
// application's own work goes on.
#pragma once

#include <atomic>
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
    const void* open = state.open_guard.load(std::memory_order_relaxed);
    if (open != nullptr) [[unlikely]] {
      if (!IsDead(state, open)) return;
    }
    mark_ = MarkAt(this);
    state_ = &state;
    // A signal handler finds the mark wherever it finds the guard.
    std::atomic_signal_fence(std::memory_order_release);
    state.open_guard.store(this, std::memory_order_relaxed);
    saved_errno_ = errno;
    const uint64_t events = state.host_events.load(std::memory_order_relaxed);
    state.host_events.store(events + 1, std::memory_order_relaxed);
    // Not the first of a thread: that one pays for page faults that no other pays.
    if (events % kHostCostSampling == kHostCostSampling - 1) StartSample();
  }
  ~Guard() {
    if (state_ == nullptr) return;
    if (state_->sample_start_ns != 0) EndSample();
    std::atomic_signal_fence(std::memory_order_release);
    state_->open_guard.store(nullptr, std::memory_order_relaxed);
    errno = saved_errno_;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  ThreadState& thread() const noexcept { return *state_; }

 private:
  static uintptr_t MarkAt(const void* guard) noexcept {
    return reinterpret_cast<uintptr_t>(guard) ^ 0x6775617264eda11e;
  }
  bool IsDead(ThreadState& state, const void* open) noexcept;
  void StartSample() noexcept;
  void EndSample() noexcept;

  ThreadState* state_ = nullptr;
  uintptr_t mark_ = 0;
  int saved_errno_ = 0;
};

// Counts records that are missing because a guard has just refused this thread while the probe is live: under
// LOSS_INTERRUPTED, or under LOSS_THREAD_SLOTS_FULL when there are too many threads.
void CountRefused(uint64_t records = 1) noexcept;

// Exists while the probe itself calls a library of the program's under a guard: events from inside it, such
// as the NVTX ranges of ncclCommCount, are the probe's own and not counted as missing.
class AskingLibrary {
 public:
  AskingLibrary() noexcept : thread_(CurrentThread()), before_(thread_.asks_library) {
    thread_.asks_library = true;
  }
  ~AskingLibrary() { thread_.asks_library = before_; }
  AskingLibrary(const AskingLibrary&) = delete;
  AskingLibrary& operator=(const AskingLibrary&) = delete;

 private:
  ThreadState& thread_;
  const bool before_;
};

// CLOCK_REALTIME in nanoseconds, the clock of CUPTI's records. 22 ns a call where this was measured (vDSO).
uint64_t NowNs() noexcept;

}  // namespace gpuprobe::injector
