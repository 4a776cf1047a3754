#include "injector/base/tick_clock.h"

#include <algorithm>
#include <cmath>

namespace gpuprobe::injector {

namespace {

// The frequency is measured over this time, or less if there is less: 100 ns of error are then 0.4 ppm, or
// 0.2 us in the expected time half a second later.
constexpr uint64_t kBaselineNs = 250'000'000;
// A slewing daemon changes a clock by microseconds between two readings. A jump this large means that the
// counter was replaced (the machine was suspended or moved), or that the clock is not worth following.
constexpr double kJumpNs = 1e6;
constexpr uint64_t kCannotBeNs = 1'000'000'000;
constexpr double kFewestNsPerTick = 0.05;  // 20 GHz
constexpr double kMostNsPerTick = 20;      // 50 MHz

double Difference(uint64_t later, uint64_t earlier) noexcept {
  return static_cast<double>(static_cast<int64_t>(later - earlier));
}

}  // namespace

// CLOCK_MONOTONIC is slewed as CLOCK_REALTIME is, and never set.
double TickClock::ExpectedNsPerTick(double* baseline_ticks) const noexcept {
  const Reading& last = newest();
  size_t i = count_ - 1;
  while (i > 0 && last.monotonic_ns - At(i).reading.monotonic_ns < kBaselineNs) --i;
  const Reading& before = At(i).reading;
  *baseline_ticks = Difference(last.ticks, before.ticks);
  return *baseline_ticks > 0 ? Difference(last.monotonic_ns, before.monotonic_ns) / *baseline_ticks : 0;
}

void TickClock::Append(const Point& point) noexcept {
  if (count_ == kKept) {
    first_ = (first_ + 1) % kKept;
    --count_;
  }
  points_[(first_ + count_++) % kKept] = point;
}

bool TickClock::Add(const Reading& reading) noexcept {
  if (count_ == 0) {
    Append({reading, 0, reading.realtime_ns});
    return true;
  }
  const Reading& last = newest();
  const double ticks = Difference(reading.ticks, last.ticks);
  const double passed_ns = Difference(reading.monotonic_ns, last.monotonic_ns);
  const double ns_per_tick = passed_ns / ticks;
  if (ticks <= 0 || ns_per_tick < kFewestNsPerTick || ns_per_tick > kMostNsPerTick) {
    // Another counter: earlier readings do not apply to it.
    count_ = 0;
    Append({reading, 0, reading.realtime_ns});
    return false;
  }
  double baseline_ticks = 0;
  const double expected_ns_per_tick = ExpectedNsPerTick(&baseline_ticks);
  const auto readings_error_ns = static_cast<double>(reading.error_ns + last.error_ns);
  double unexpected_ns = 0;  // beyond what the readings' own errors explain
  if (baseline_ticks > 0) {
    const double noise_ns = readings_error_ns * (1 + ticks / baseline_ticks);
    unexpected_ns = std::max(0.0, std::fabs(passed_ns - ticks * expected_ns_per_tick) - noise_ns);
  }
  const double set_by_ns = Difference(reading.realtime_ns, last.realtime_ns) - passed_ns;
  const bool was_set = std::fabs(set_by_ns) > kMaxErrorNs + readings_error_ns;
  const bool jumped = unexpected_ns > kJumpNs;

  Point point{reading, ns_per_tick, reading.realtime_ns};
  if (was_set) {
    // When it was set is not known: until now, for the times' sake, that all of the stretch has.
    point.end_ns = last.realtime_ns + static_cast<uint64_t>(passed_ns);
  } else {
    point.ns_per_tick = Difference(reading.realtime_ns, last.realtime_ns) / ticks;
  }
  if (jumped) point.ns_per_tick = expected_ns_per_tick;
  Append(point);

  const uint64_t error_ns =
      std::max(reading.error_ns, At(count_ - 2).reading.error_ns) + static_cast<uint64_t>(unexpected_ns);
  max_error_ns_ = std::max(max_error_ns_, error_ns);
  return !was_set && error_ns <= kMaxErrorNs;
}

uint64_t TickClock::RealtimeNs(uint64_t ticks) const noexcept {
  if (count_ == 0) return 0;
  const Point& last = At(count_ - 1);
  if (ticks >= last.reading.ticks) {
    const double more_ns = Difference(ticks, last.reading.ticks) * last.ns_per_tick;
    return last.reading.realtime_ns + (more_ns < kCannotBeNs ? static_cast<uint64_t>(more_ns) : 0);
  }
  size_t i = count_ - 1;
  while (i > 0 && ticks < At(i - 1).reading.ticks) --i;
  if (i > 0) {
    const Reading& before = At(i - 1).reading;
    const double more_ns = Difference(ticks, before.ticks) * At(i).ns_per_tick;
    return std::min(before.realtime_ns + static_cast<uint64_t>(more_ns), At(i).end_ns);
  }
  // Older than every reading kept: the thread was held up between taking the stamp and reporting it.
  const Reading& first = At(0).reading;
  const double ns_per_tick = count_ > 1 ? At(1).ns_per_tick : 0;
  return first.realtime_ns - static_cast<uint64_t>(Difference(first.ticks, ticks) * ns_per_tick);
}

}  // namespace gpuprobe::injector
