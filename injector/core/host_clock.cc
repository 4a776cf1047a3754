#include "injector/core/host_clock.h"

#include <ctime>
#include <string_view>

#include "injector/base/own_descriptor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace gpuprobe::injector {

constinit std::atomic<bool> stamps_are_ticks{false};
constinit HostClock host_clock;

namespace {

constexpr uint64_t kNotSoonerNs = 250'000;  // closer readings add nothing
constexpr int kQuietReadings = 16;          // in a row, until a counter that was given up is used again
constexpr uint64_t kMostFallbacks = 8;      // then for good
constexpr int kTries = 5;                   // for a reading that nothing interrupted

uint64_t ClockNs(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

#if defined(__x86_64__)

// Ticks at one rate, whatever the core's frequency, and through its sleep.
bool HasInvariantCounter() noexcept {
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int c = 0;
  unsigned int d = 0;
  return __get_cpuid(0x8000'0007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}

// The kernel watches the counter and drops it as its clock source when the cores' disagree.
bool KernelTrustsCounter() noexcept {
  char name[64];
  size_t size =
      ReadOwnFile("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, sizeof(name));
  while (size > 0 && name[size - 1] == '\n') --size;
  const std::string_view source(name, size);
  return source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page";
}

// In program order, unlike Stamp's.
uint64_t OrderedTicks() noexcept {
  _mm_lfence();
  const uint64_t ticks = __rdtsc();
  _mm_lfence();
  return ticks;
}

// The best of some tries; its error is half of what it took, ticks taken as nanoseconds, which they are at
// least.
TickClock::Reading ReadBoth() noexcept {
  TickClock::Reading best{};
  best.error_ns = UINT64_MAX;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = OrderedTicks();
    const uint64_t realtime_ns = ClockNs(CLOCK_REALTIME);
    const uint64_t between = OrderedTicks();
    const uint64_t monotonic_ns = ClockNs(CLOCK_MONOTONIC);
    const uint64_t after = OrderedTicks();
    const uint64_t error_ns = (after - before) / 2;
    if (error_ns >= best.error_ns) continue;
    best = {before + (between - before) / 2, realtime_ns, monotonic_ns, error_ns};
  }
  return best;
}

#else

bool HasInvariantCounter() noexcept { return false; }
bool KernelTrustsCounter() noexcept { return false; }
TickClock::Reading ReadBoth() noexcept { return {}; }

#endif

}  // namespace

void HostClock::Start() noexcept {
  if (in_use() || !HasInvariantCounter() || !KernelTrustsCounter()) return;
  const TickClock::Reading first = ReadBoth();
  if (first.error_ns > TickClock::kMaxErrorNs) return;
  ticks_.Add(first);
  stamps_are_ticks.store(true, std::memory_order_relaxed);
}

void HostClock::Read(bool now) noexcept {
  if (!in_use()) return;
  if (!now && ClockNs(CLOCK_MONOTONIC) - ticks_.newest().monotonic_ns < kNotSoonerNs) return;
  if (!ticks_.Add(ReadBoth())) {
    quiet_readings_ = 0;
    fallbacks_ += stamps_are_ticks.exchange(false, std::memory_order_relaxed) ? 1 : 0;
  } else if (!stamps_are_ticks.load(std::memory_order_relaxed) && ++quiet_readings_ >= kQuietReadings &&
             fallbacks_ < kMostFallbacks) {
    stamps_are_ticks.store(true, std::memory_order_relaxed);
  }
}

}  // namespace gpuprobe::injector
