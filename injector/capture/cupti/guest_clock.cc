#include "injector/capture/cupti/guest_clock.h"

#include <pthread.h>

#include <atomic>
#include <ctime>

#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/base/tick_clock.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_records.h"
#include "injector/capture/cupti/record_times.h"

namespace gpuprobe::injector {
namespace guest {
namespace {

constinit std::atomic<CUpti_TimestampCallbackFunc> clock_of_guest{nullptr};
constinit pthread_mutex_t clock_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit TickClock clock_readings;

uint64_t ReadClock(clockid_t id) noexcept {
  timespec now{};
  clock_gettime(id, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// A reading this good ends the search for a better one.
constexpr uint64_t kGoodClockNs = 200;
constexpr int kClockTries = 16;

// Far enough from any clock that counts from a machine's start.
constexpr uint64_t kPlausibleNs = 600'000'000'000;

uint64_t RestoredTime(uint64_t time, uint64_t now_ns) noexcept {
  if (time == 0 || (time + kPlausibleNs > now_ns && time < now_ns + kPlausibleNs)) return time;
  const Lock lock(clock_mutex);
  return clock_readings.RealtimeNs(time);
}

void RestoreRecord(CUpti_Activity* record, uint64_t now_ns) noexcept {
  VisitTimed(record, [now_ns](auto& row) noexcept {
    if constexpr (requires { row.start; }) {
      row.start = RestoredTime(row.start, now_ns);
      row.end = RestoredTime(row.end, now_ns);
    } else {
      row.timestamp = RestoredTime(row.timestamp, now_ns);
    }
  });
}

}  // namespace

uint64_t RecordTime() noexcept {
  const auto function = clock_of_guest.load(std::memory_order_acquire);
  return function != nullptr ? function() : ReadClock(CLOCK_REALTIME);
}

CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function) {
  const CUptiResult result = host.api->ActivityRegisterTimestampCallback(function);
  if (result != CUPTI_SUCCESS || function == nullptr || InForkedChild()) return result;
  {
    const Lock lock(clock_mutex);
    if (function != clock_of_guest.load(std::memory_order_relaxed)) clock_readings = {};
  }
  clock_of_guest.store(function, std::memory_order_release);
  ReadGuestClock();
  RestartWindows(function());
  return result;
}

void ForgetClockForTest() noexcept {
  clock_of_guest.store(nullptr);
  clock_readings = {};
}

}  // namespace guest

void ReadGuestClock() noexcept {
  const auto function = guest::clock_of_guest.load(std::memory_order_acquire);
  if (function == nullptr) return;
  TickClock::Reading best{0, 0, 0, UINT64_MAX};
  // All three clocks between two looks at one of them: a thread that is held up anywhere in there shows.
  for (int i = 0; i < guest::kClockTries && best.error_ns > guest::kGoodClockNs; ++i) {
    const uint64_t before_ns = guest::ReadClock(CLOCK_MONOTONIC);
    const uint64_t ticks = function();
    const uint64_t realtime_ns = guest::ReadClock(CLOCK_REALTIME);
    const uint64_t took_ns = guest::ReadClock(CLOCK_MONOTONIC) - before_ns;
    if (took_ns < best.error_ns) best = {ticks, realtime_ns, before_ns + took_ns / 2, took_ns};
  }
  const Lock lock(guest::clock_mutex);
  if (guest::clock_readings.empty() || best.ticks > guest::clock_readings.newest().ticks)
    static_cast<void>(guest::clock_readings.Add(best));
}

void RestoreTimes(uint8_t* buffer, size_t valid_bytes) noexcept {
  if (guest::clock_of_guest.load(std::memory_order_acquire) == nullptr) return;
  ReadGuestClock();
  const uint64_t now_ns = guest::ReadClock(CLOCK_REALTIME);
  CUpti_Activity* record = nullptr;
  while (guest::host.api->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
    guest::RestoreRecord(record, now_ns);
}

}  // namespace gpuprobe::injector
