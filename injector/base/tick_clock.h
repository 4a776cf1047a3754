// Converts the processor's time-stamp counter to CLOCK_REALTIME, piecewise linear between readings of both.
//
// host_clock.h takes the readings; tests feed this class clocks that step, slew and jump. Thread: the one
// that holds the builder's lock. Allocation: none. Failure: Add rejects a reading that does not continue the
// ones before it; what was read before stays as it was.
//
// Times between two readings are interpolated, so that nothing is assumed about the counter's frequency and
// errors do not add up: a time is off by the error of the nearest readings and by how much the clock was
// slewed between them, which is measured as the difference from the expected value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

class TickClock {
 public:
  // Both clocks at one moment.
  struct Reading {
    uint64_t ticks;
    uint64_t realtime_ns;
    uint64_t monotonic_ns;
    uint64_t error_ns;  // at most, of realtime_ns
  };

  // False when the times since the last reading may be wrong by more than kMaxErrorNs, or CLOCK_REALTIME was
  // set meanwhile. A clock that was set has its new time from this reading on.
  bool Add(const Reading& reading) noexcept;

  // Never decreases, except when the clock was set back. Ticks after the last reading are extrapolated; those
  // more than a second after it cannot have come from this counter and get the reading's time.
  uint64_t RealtimeNs(uint64_t ticks) const noexcept;

  bool empty() const noexcept { return count_ == 0; }
  const Reading& newest() const noexcept { return At(count_ - 1).reading; }
  // Largest possible difference from CLOCK_REALTIME of any time since the start.
  uint64_t max_error_ns() const noexcept { return max_error_ns_; }

  static constexpr uint64_t kMaxErrorNs = 1000;

 private:
  static constexpr size_t kKept = 256;  // two minutes of them at the usual pace

  struct Point {
    Reading reading;
    // For the stretch that ends here.
    double ns_per_tick;
    uint64_t end_ns;  // no time in it is later
  };
  const Point& At(size_t i) const noexcept { return points_[(first_ + i) % kKept]; }
  double ExpectedNsPerTick(double* baseline_ticks) const noexcept;
  void Append(const Point& point) noexcept;

  Point points_[kKept] = {};
  size_t first_ = 0;
  size_t count_ = 0;
  uint64_t max_error_ns_ = 0;
};

}  // namespace gpuprobe::injector
