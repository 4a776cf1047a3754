// The only way into the probe from the application's threads.
//
// Every exported function, callback and intercepted call opens a Guard and does its work only if the guard
// let it in: the probe is live, this process is the one that started it (not a forked child), and the thread
// is not already inside the probe. Code under a guard is noexcept, and errno is afterwards what it was.
// Thread: any application thread. Allocation: none. Failure: not entering is the failure mode; the
// application's own work goes on.
#pragma once

#include <cstdint>

#include "injector/thread_state.h"

namespace gpuprobe::injector {

class Guard {
 public:
  // Enters if possible. Costs one thread-local load and one relaxed atomic load when the probe is off.
  Guard() noexcept;
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  explicit operator bool() const noexcept { return state_ != nullptr; }
  ThreadState& thread() const noexcept { return *state_; }

 private:
  ThreadState* state_ = nullptr;
  int saved_errno_ = 0;
};

// CLOCK_REALTIME in nanoseconds, the clock of CUPTI's records. 22 ns a call where this was measured (vDSO).
uint64_t NowNs() noexcept;

}  // namespace gpuprobe::injector
