// Cheap timestamps for events of the application's threads: a stamp costs 10 ns instead of 23, and becomes
// CLOCK_REALTIME, the clock of CUPTI's records, when the event is taken out of its ring.
//
// tick_clock.h has the arithmetic. Thread: Stamp on any; starting on the starting thread; the rest on the
// thread that holds the builder's lock. Allocation: none. Failure: while the counter cannot be trusted (no
// invariant TSC, another clock source in the kernel, a clock that was set or slewed by more than a
// microsecond between two readings), every event reads the kernel's clock.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/base/tick_clock.h"
#include "injector/core/guard.h"

namespace gpuprobe::injector {

// A stamp with this bit is a count of ticks; without, nanoseconds.
inline constexpr uint64_t kTickStamp = uint64_t{1} << 63;

extern std::atomic<bool> stamps_are_ticks;

// The time of an event, for its ring.
inline uint64_t Stamp() noexcept {
#if defined(__x86_64__)
  if (stamps_are_ticks.load(std::memory_order_relaxed)) return __builtin_ia32_rdtsc() | kTickStamp;
#endif
  return NowNs();
}

// True if less than `ns` passed between two stamps of one thread. The counter's rate is not known here, but
// it has at least one tick a nanosecond, so that false may be an error. For short times.
inline bool IsSurelyShorter(uint64_t from, uint64_t to, uint64_t ns) noexcept {
  return ((from ^ to) & kTickStamp) == 0 && to - from < ns;
}

class HostClock {
 public:
  // Finds out whether stamps can be ticks.
  void Start() noexcept;

  // Reads both clocks. `now`: even if they were read a moment ago. Earlier stamps can then be converted to
  // nanoseconds.
  void Read(bool now) noexcept;

  bool in_use() const noexcept { return !ticks_.empty(); }

  // False when the stamp is younger than the last reading: its time is then an extrapolation.
  bool IsFinal(uint64_t stamp) const noexcept {
    return (stamp & kTickStamp) == 0 || (stamp & ~kTickStamp) <= ticks_.newest().ticks;
  }
  uint64_t RealtimeNs(uint64_t stamp) const noexcept {
    return (stamp & kTickStamp) == 0 ? stamp : ticks_.RealtimeNs(stamp & ~kTickStamp);
  }

  uint64_t max_error_ns() const noexcept { return ticks_.max_error_ns(); }
  uint64_t fallbacks() const noexcept { return fallbacks_; }

 private:
  TickClock ticks_;
  uint64_t fallbacks_ = 0;  // times that the counter was given up
  int quiet_readings_ = 0;  // since then
};

// The process's own; under the builder's lock.
extern HostClock host_clock;

}  // namespace gpuprobe::injector
