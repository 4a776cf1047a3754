#include "injector/capture/cupti/guest_clock.h"

#include <pthread.h>

#include <atomic>
#include <ctime>

#include "injector/base/lifecycle.h"
#include "injector/base/lock.h"
#include "injector/base/tick_clock.h"
#include "injector/capture/cupti/guest.h"
#include "injector/capture/cupti/guest_calls.h"
#include "injector/capture/cupti/guest_records.h"
#include "injector/capture/cupti/record_times.h"

namespace gpuprobe::injector {
namespace guest {
namespace {

// The guest's function, and whether it may be called.
constinit std::atomic<CUpti_TimestampCallbackFunc> clock_of_guest{nullptr};
constinit std::atomic<CUpti_TimestampCallbackFunc> given_before{
    nullptr};  // the one that CUPTI last got as ours
constinit std::atomic<bool> runs{false};
constinit std::atomic<bool> with_cupti{false};  // CUPTI calls our Clock, for good
constinit std::atomic<bool> due{false};         // pass it to CUPTI once the guest records

// How to extrapolate the clock while the guest's may not be called.
struct Continuation {
  uint64_t ticks = 0;
  uint64_t monotonic_ns = 0;
  double ticks_per_ns = 1;
};
constinit Continuation continuations[16];  // a reader may be at an old one
constinit std::atomic<uint32_t> continuation{0};

constinit pthread_mutex_t clock_mutex = PTHREAD_MUTEX_INITIALIZER;
constinit TickClock clock_readings;
constinit TickClock::Reading first_reading{};  // of this clock

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

uint64_t Continued(uint64_t monotonic_ns) noexcept {
  const Continuation& from = continuations[continuation.load(std::memory_order_acquire) % 16];
  const double passed_ns = static_cast<double>(static_cast<int64_t>(monotonic_ns - from.monotonic_ns));
  return from.ticks + static_cast<uint64_t>(static_cast<int64_t>(passed_ns * from.ticks_per_ns));
}

// The function that CUPTI calls.
uint64_t CUPTIAPI Clock() {
  clock_calls.Enter();
  const auto function = runs.load() ? clock_of_guest.load() : nullptr;
  const uint64_t ticks = function != nullptr ? function() : 0;
  clock_calls.Leave();
  return function != nullptr ? ticks : Continued(ReadClock(CLOCK_MONOTONIC));
}

// Reads all three clocks between two readings of one of them, which shows if the thread was held up in
// between.
void TakeReading() noexcept {
  TickClock::Reading best{0, 0, 0, UINT64_MAX};
  for (int i = 0; i < kClockTries && best.error_ns > kGoodClockNs; ++i) {
    const uint64_t before_ns = ReadClock(CLOCK_MONOTONIC);
    const uint64_t ticks = Clock();
    const uint64_t realtime_ns = ReadClock(CLOCK_REALTIME);
    const uint64_t took_ns = ReadClock(CLOCK_MONOTONIC) - before_ns;
    if (took_ns < best.error_ns) best = {ticks, realtime_ns, before_ns + took_ns / 2, took_ns};
  }
  const Lock lock(clock_mutex);
  if (clock_readings.empty()) first_reading = best;
  if (clock_readings.empty() || best.ticks > clock_readings.newest().ticks)
    static_cast<void>(clock_readings.Add(best));
}

// The guest's clock is not asked for it: its thread may hold a lock that the clock takes.
Continuation FromReadings() noexcept {
  const Lock lock(clock_mutex);
  if (clock_readings.empty()) return {};
  const TickClock::Reading& last = clock_readings.newest();
  const double ticks = static_cast<double>(static_cast<int64_t>(last.ticks - first_reading.ticks));
  const double ns = static_cast<double>(static_cast<int64_t>(last.monotonic_ns - first_reading.monotonic_ns));
  return {last.ticks, last.monotonic_ns, ticks > 0 && ns > 0 ? ticks / ns : 1};
}

// Records that wait in CUPTI while a clock is registered lose their times, so they are fetched first. That
// waits for CUPTI's thread, which must not need the guest's locks: no record may be on its way to the guest,
// and this thread may not be in a call of CUPTI's to it.
//
// Readings before and after CUPTI's own work show how fast the clock runs.
CUptiResult GiveToCupti() noexcept {
  due.store(false, std::memory_order_relaxed);
  runs.store(true);
  TakeReading();
  const CUpti_TimestampCallbackFunc given = clock_of_guest.load(std::memory_order_relaxed);
  if (given == given_before.load(std::memory_order_relaxed)) {
    RestartWindows(Clock());
    return CUPTI_SUCCESS;
  }
  if (Receiving() && !HasRecorded() && OwnCalls() == 0) host.flush(host.self);
  const CUptiResult result = Functions().ActivityRegisterTimestampCallback(Clock);
  if (result != CUPTI_SUCCESS) return result;
  given_before.store(given, std::memory_order_relaxed);
  with_cupti.store(true, std::memory_order_release);
  TakeReading();
  RestartWindows(Clock());
  return result;
}

}  // namespace

uint64_t RecordTime() noexcept {
  return with_cupti.load(std::memory_order_acquire) ? Clock() : ReadClock(CLOCK_REALTIME);
}

CUptiResult CUPTIAPI RegisterClock(CUpti_TimestampCallbackFunc function) {
  if (function == nullptr || InForkedChild()) return Functions().ActivityRegisterTimestampCallback(function);
  {
    const Lock lock(clock_mutex);
    if (function != clock_of_guest.load(std::memory_order_relaxed)) clock_readings = {};
  }
  clock_of_guest.store(function);
  if (!Receiving() || RecordsAnything()) return GiveToCupti();
  due.store(true, std::memory_order_relaxed);
  return CUPTI_SUCCESS;
}

void StartClock() noexcept {
  if (due.load(std::memory_order_relaxed)) {
    static_cast<void>(GiveToCupti());
  } else if (clock_of_guest.load(std::memory_order_relaxed) != nullptr) {
    runs.store(true);
  }
}

void StopClock() noexcept {
  if (!runs.load()) return;
  const uint32_t next = continuation.load(std::memory_order_relaxed) + 1;
  continuations[next % 16] = FromReadings();
  continuation.store(next, std::memory_order_release);
  runs.store(false);
  clock_calls.AwaitOthers(0);
}

void EndClock() noexcept {
  StopClock();
  due.store(false, std::memory_order_relaxed);
  clock_of_guest.store(nullptr);
}

void ForgetGivenClock() noexcept { given_before.store(nullptr, std::memory_order_relaxed); }

}  // namespace guest

// A tool that had CUPTI before us may have gone, with its clock, as long as CUPTI is not ours.
void ReadGuestClock() noexcept {
  if (guest::with_cupti.load(std::memory_order_acquire) && (guest::Receiving() || guest::RecordsAnything()))
    guest::TakeReading();
}

void RestoreTimes(uint8_t* buffer, size_t valid_bytes) noexcept {
  if (!guest::with_cupti.load(std::memory_order_acquire)) return;
  ReadGuestClock();
  const uint64_t now_ns = guest::ReadClock(CLOCK_REALTIME);
  CUpti_Activity* record = nullptr;
  while (guest::api->ActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
    guest::RestoreRecord(record, now_ns);
}

}  // namespace gpuprobe::injector
