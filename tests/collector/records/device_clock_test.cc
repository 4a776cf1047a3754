// CUPTI's clock against the program's: when they are found to differ, by how much, and what follows for
// times.
#include "collector/records/device_clock.h"

#include <gtest/gtest.h>

#include "collector/model/process/process_model.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::BatchBuilder;
using testing::kMs;
using testing::kSecond;
using testing::kStart;
using testing::MakeHello;

constexpr uint64_t kFiveYears = uint64_t{157'680'000} * kSecond;
constexpr uint64_t kUptime = 1000 * kSecond;

v1::ClockPair ClocksAt(uint64_t since_start_ns) {
  v1::ClockPair pair;
  pair.set_realtime_ns(kStart + since_start_ns);
  pair.set_monotonic_ns(kUptime + since_start_ns);
  return pair;
}

// Launches at 1 s and 1.1 s, whose kernels begin 5 us and 90 ms later on a clock that is `ahead_ns` ahead.
// Sealed at 2 s.
v1::Batch TwoKernels(uint64_t ahead_ns) {
  BatchBuilder batch;
  batch.String(1, "gemm").Site(1, 1).Thread(1, true);
  batch.Launch(1, kStart + kSecond, 11).Launch(1, kStart + kSecond + 100 * kMs, 12);
  const uint64_t first = kStart + kSecond + 5'000 + ahead_ns;
  const uint64_t second = kStart + kSecond + 190 * kMs + ahead_ns;
  batch.Kernel(first, first + kMs, 1, 11).Kernel(second, second + kMs, 1, 12);
  batch.Clock(kStart + 2 * kSecond, kUptime + 2 * kSecond);
  return batch.batch();
}

int64_t AheadIn(const v1::Batch& batch) {
  DeviceClock clock;
  clock.BeginBatch(batch, ClocksAt(0));
  return clock.ahead_ns();
}

TEST(DeviceClock, AgreesAsARule) { EXPECT_EQ(AheadIn(TwoKernels(0)), 0); }

TEST(DeviceClock, FiveYearsAheadOrBehind) {
  EXPECT_EQ(AheadIn(TwoKernels(kFiveYears)), static_cast<int64_t>(kFiveYears) + 5'000);
  EXPECT_EQ(AheadIn(TwoKernels(-kFiveYears)), -static_cast<int64_t>(kFiveYears) + 5'000);
}

TEST(DeviceClock, KernelsBeforeTheirLaunchesAreEnough) {
  EXPECT_EQ(AheadIn(TwoKernels(-(500 * kMs))), -static_cast<int64_t>(500 * kMs) + 5'000);
}

TEST(DeviceClock, ADelayedRecordIsNoDifference) { EXPECT_EQ(AheadIn(TwoKernels(700 * kMs)), 0); }

TEST(DeviceClock, WithoutLaunchesTheBoundsCount) {
  BatchBuilder batch;
  batch.String(1, "gemm").Site(1, 1);
  batch.Kernel(kStart + kFiveYears, kStart + kFiveYears + kMs, 1, 11);
  batch.Clock(kStart + 2 * kSecond, kUptime + 2 * kSecond);
  EXPECT_EQ(AheadIn(batch.batch()), static_cast<int64_t>(kFiveYears + kMs - 2 * kSecond));
}

TEST(DeviceClock, AClockThatWasSetMeanwhileProvesNothing) {
  v1::Batch batch = TwoKernels(-(500 * kMs));
  batch.mutable_clock()->set_monotonic_ns(kUptime + kSecond);
  EXPECT_EQ(AheadIn(batch), 0);
}

TEST(DeviceClock, TheFirstRecordsDecide) {
  DeviceClock clock;
  clock.BeginBatch(TwoKernels(0), ClocksAt(0));
  clock.BeginBatch(TwoKernels(kFiveYears), ClocksAt(0));
  EXPECT_EQ(clock.ahead_ns(), 0);
}

TEST(DeviceClock, LaunchesOfEarlierBatchesCount) {
  v1::Batch launches = TwoKernels(0);
  launches.clear_kernels();
  v1::Batch kernels = TwoKernels(kFiveYears);
  kernels.clear_launches();
  DeviceClock clock;
  clock.BeginBatch(launches, ClocksAt(0));
  clock.BeginBatch(kernels, ClocksAt(0));
  EXPECT_EQ(clock.ahead_ns(), static_cast<int64_t>(kFiveYears) + 5'000);
}

TEST(DeviceClock, TimesOfTheModelAreOnTheProgramsClock) {
  for (const uint64_t ahead_ns : {uint64_t{0}, kFiveYears, -kFiveYears}) {
    v1::Hello hello = MakeHello(0, 1, 7);
    *hello.mutable_clock() = ClocksAt(0);
    ProcessModel process(hello, {});
    ASSERT_TRUE(process.Apply(TwoKernels(ahead_ns)).ok());
    process.Finish();
    EXPECT_GE(process.totals().first_ns, kStart) << ahead_ns;
    EXPECT_LE(process.totals().last_ns, kStart + 2 * kSecond) << ahead_ns;
    ASSERT_EQ(process.devices().size(), 1U);
    EXPECT_EQ(process.devices().begin()->second.busy.TotalNs(), 2 * kMs);
    EXPECT_EQ(process.totals().kernels, 2U);
  }
}

}  // namespace
}  // namespace gpuprobe::model
