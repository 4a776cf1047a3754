// The processor's time-stamp counter as CLOCK_REALTIME: piecewise linear between readings of both.
//
// Separate from who takes the readings (host_clock.h), so that clocks that step, slew and jump can be
// tried. Thread: whoever holds the builder's lock. Allocation: none. Failure: a reading that does not go on
// from those before it says so; what was read before stays as it was.
//
// Between two readings the times are interpolated, so that nothing is assumed about the counter's frequency
// and errors do not add up: a time is wrong by what the nearest readings are, and by how much the clock was
// slewed between them, which is measured as the difference to what was to be expected.
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

  // Never decreasing, but for a clock that was set back. Ticks behind the last reading are extrapolated;
  // those more than a second behind it cannot have come from this counter and get the reading's time.
  uint64_t RealtimeNs(uint64_t ticks) const noexcept;

  bool empty() const noexcept { return count_ == 0; }
  const Reading& newest() const noexcept { return At(count_ - 1).reading; }
  // Of any time since the start: at most so much from what CLOCK_REALTIME would have said.
  uint64_t max_error_ns() const noexcept { return max_error_ns_; }

  static constexpr uint64_t kMaxErrorNs = 1000;

 private:
  static constexpr size_t kKept = 256;  // two minutes of them at the usual pace

  struct Point {
    Reading reading;
    // Of the stretch that ends here.
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
