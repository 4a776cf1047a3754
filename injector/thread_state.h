// What the probe knows about one application thread: re-entrancy, its event ring, its open ranges, and the NCCL group it is in.
//
// One struct so that a callback finds everything with a single thread-local load. Owned by its thread; other threads read only what is
// atomic. Allocation: none, ever (static thread-local storage, rings from a pool that is mapped at start).
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

class EventRing;

inline constexpr int kMaxRangeDepth = 64;

struct ThreadState {
  int guard_depth = 0;            // > 0: our own code runs on this thread
  bool ring_refused = false;      // no slot was free: LOSS_THREAD_SLOTS_FULL is counted for each event
  EventRing* ring = nullptr;      // claimed on the first event
  uint32_t tid = 0;

  // Push/pop ranges that are open, innermost last. Beyond kMaxRangeDepth only the depth is kept, and the loss counted.
  int range_depth = 0;
  uint64_t range_ids[kMaxRangeDepth] = {};

  // NCCL: depth of group calls, and the plan that launches on this thread belong to while an NCCL call of the application runs.
  int nccl_call_depth = 0;   // inside an intercepted nccl* function
  int nccl_group_depth = 0;  // GroupStart minus GroupEnd, as the application called them
  uint64_t nccl_plan = 0;    // plan of the call or group that is being issued, 0 outside

  // Runtime-API allocation calls that contain a driver call which was counted already.
  uint32_t last_allocation_correlation = 0;
  uint32_t last_launch_correlation = 0;
};

// The calling thread's state. Never null, no allocation.
ThreadState& CurrentThread() noexcept;

// Innermost open push/pop range of this thread, 0 if none.
inline uint64_t InnermostRange(const ThreadState& state) noexcept {
  if (state.range_depth <= 0) return 0;
  return state.range_ids[(state.range_depth < kMaxRangeDepth ? state.range_depth : kMaxRangeDepth) - 1];
}

// Innermost range of the process's main thread, which other threads' launches belong to when they have none of their own.
extern std::atomic<uint64_t> main_thread_range;

}  // namespace gpuprobe::injector
