#include "collector/records/continuous_clock.h"

#include <gtest/gtest.h>

#include "collector/records/row_clock.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::model {
namespace {

using testing::BatchBuilder;
using testing::kMs;
using testing::kStart;

constexpr uint64_t kBack = 80 * kMs;

// Launches every millisecond, numbered from 1; the clock is set 80 ms back after the tenth.
v1::Batch Launches(uint64_t silent_ns = 0) {
  BatchBuilder b(2, kStart);
  for (uint64_t i = 1; i <= 20; ++i) {
    const uint64_t true_ns = kStart + 200 * kMs + i * kMs + (i > 10 ? silent_ns : 0);
    b.Launch(1, true_ns - (i > 10 ? kBack : 0), i);
  }
  return b.batch();
}

TEST(ContinuousClock, LaunchesGoOnWhereTheyWere) {
  ContinuousClock clock;
  EXPECT_FALSE(clock.moved());
  const v1::Batch batch = Launches();
  clock.SetBack(batch, kBack, kStart + 200 * kMs, kStart + 195 * kMs);
  clock.BeginBatch(batch, true);
  ASSERT_TRUE(clock.moved());
  EXPECT_EQ(clock.Launch(10, kStart + 210 * kMs), kStart + 210 * kMs);
  EXPECT_EQ(clock.Launch(11, kStart + 211 * kMs - kBack), kStart + 211 * kMs);
  clock.BeginBatch(v1::Batch(), false);
  EXPECT_EQ(clock.Launch(30, kStart + 170 * kMs), kStart + 250 * kMs);
  EXPECT_EQ(clock.Host(1, 0, kStart + 170 * kMs), kStart + 250 * kMs);
}

TEST(RowClock, AllTimesOfARecordMoveTogetherAndLengthsStay) {
  ContinuousClock clock;
  const v1::Batch batch = Launches();
  clock.SetBack(batch, kBack, kStart + 200 * kMs, kStart + 195 * kMs);
  clock.BeginBatch(batch, true);
  clock.BeginBatch(v1::Batch(), false);
  const uint64_t now = kStart + 300 * kMs;
  RecordedStepRecord step{
      .begin_ns = now, .end_ns = now + 9, .wait_start_ns = now - 5, .wait_end_ns = now - 2};
  MoveToLine(clock, 0, step);
  EXPECT_EQ(step.begin_ns, now + kBack);
  EXPECT_EQ(step.end_ns, now + 9 + kBack);
  EXPECT_EQ(step.earlier_end_ns, 0u) << "there was none";
  EXPECT_EQ(step.wait_start_ns, now - 5 + kBack);
  EXPECT_EQ(step.wait_end_ns, now - 2 + kBack);
  AllocationRecord allocation{.time_ns = now, .thread = 3, .duration_ns = 70};
  MoveToLine(clock, 0, allocation);
  EXPECT_EQ(allocation.time_ns, now + kBack);
  EXPECT_EQ(allocation.duration_ns, 70u);
  CopyRecord copy{.start_ns = now, .end_ns = now + 100, .correlation = 30};
  MoveToLine(clock, 7, copy);
  EXPECT_EQ(copy.start_ns, now + kBack);
  EXPECT_EQ(copy.end_ns, now + 100 + kBack);
  RangeRecord early{.start_ns = kStart, .end_ns = kStart + kMs, .id = 0};
  MoveToLine(clock, 0, early);
  EXPECT_EQ(early.end_ns, kStart + kMs) << "it was before";
  PlanRecord plan{.plan = 4, .correlation = 5};
  MoveToLine(clock, 0, plan);
  EXPECT_EQ(plan.correlation, 5u) << "nothing of it is a time";
}

TEST(ContinuousClock, AStreamIsInOrderWhenItsLaunchesWereBefore) {
  ContinuousClock clock;
  const v1::Batch batch = Launches();
  clock.SetBack(batch, kBack, kStart + 200 * kMs, kStart + 195 * kMs);
  clock.BeginBatch(batch, true);
  EXPECT_EQ(clock.Device(7, 5, kStart + 206 * kMs, kStart + 206 * kMs), kStart + 206 * kMs);
  EXPECT_EQ(clock.Device(7, 6, kStart + 212 * kMs - kBack, kStart + 212 * kMs - kBack), kStart + 212 * kMs);
  EXPECT_EQ(clock.Device(7, 7, kStart + 220 * kMs - kBack, kStart + 220 * kMs - kBack), kStart + 220 * kMs);
  // A stream with little on it, whose operation was launched after that.
  EXPECT_EQ(clock.Device(9, 8, kStart + 221 * kMs - kBack, kStart + 221 * kMs - kBack), kStart + 221 * kMs);
  // What comes late is far before anything after it.
  EXPECT_EQ(clock.Device(7, 1, kStart + 100 * kMs, kStart + 100 * kMs), kStart + 100 * kMs);
}

TEST(ContinuousClock, AHostThatWasSilentForLongerIsFoundByItsDevice) {
  ContinuousClock clock;
  v1::Batch batch = Launches(100 * kMs);
  BatchBuilder device(2, kStart);
  device.String(1, "gemm").Site(1, 1);
  device.Kernel(kStart + 205 * kMs, kStart + 208 * kMs, 1, 9);
  device.Kernel(kStart + 308 * kMs, kStart + 309 * kMs, 1, 10);
  device.Kernel(kStart + 312 * kMs - kBack, kStart + 313 * kMs - kBack, 1, 11);
  *batch.mutable_kernels() = device.batch().kernels();
  *batch.mutable_kernel_sites() = device.batch().kernel_sites();
  clock.SetBack(batch, kBack, kStart + 200 * kMs, kStart + 195 * kMs);
  clock.BeginBatch(batch, true);
  EXPECT_EQ(clock.Launch(10, kStart + 210 * kMs), kStart + 210 * kMs);
  EXPECT_EQ(clock.Launch(11, kStart + 311 * kMs - kBack), kStart + 311 * kMs);
}

TEST(ContinuousClock, TimesLeaveItAsTheClockSaid) {
  ContinuousClock clock;
  const v1::Batch batch = Launches();
  clock.SetBack(batch, kBack, kStart + 200 * kMs, kStart + 195 * kMs);
  EXPECT_EQ(clock.Realtime(kStart + 205 * kMs), kStart + 205 * kMs);
  EXPECT_EQ(clock.Realtime(kStart + 300 * kMs), kStart + 300 * kMs - kBack);
  EXPECT_EQ(clock.BackAt(UINT64_MAX), kBack);
}

}  // namespace
}  // namespace gpuprobe::model
