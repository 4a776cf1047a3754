#include "collector/model/operations/operation_joiner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OperationJoinerTest : public ::testing::Test {
 protected:
  OperationJoinerTest() { joiner_.BeginBatch(batch_); }

  void Launch(uint64_t correlation, uint64_t time_ns = 100) {
    joiner_.AddLaunch({.thread = 1,
                       .time_ns = time_ns,
                       .correlation = correlation,
                       .range = 0,
                       .fallback_range = 0,
                       .graph = 0});
  }
  void Kernel(uint64_t correlation, uint64_t start_ns = 150) {
    joiner_.Add(correlation, [=] {
      return Operation{.correlation = correlation, .start_ns = start_ns, .end_ns = start_ns + 10};
    });
  }
  auto Into(std::vector<uint64_t>& out) {
    return [this, &out](const Operation& operation) {
      out.push_back(operation.correlation);
      launched_.push_back(operation.launched);
    };
  }
  // What was handed on in the batch that ends.
  std::vector<uint64_t> EndBatch() {
    std::vector<uint64_t> out;
    joiner_.EndBatch(Into(out));
    joiner_.BeginBatch(++batch_);
    return out;
  }
  std::vector<uint64_t> Finish() {
    std::vector<uint64_t> out;
    joiner_.Finish(Into(out));
    return out;
  }
  CollectiveTracker collectives_{{}};
  RangeTracker ranges_;
  OperationJoiner joiner_{collectives_, ranges_};
  uint32_t batch_ = 1;
  std::vector<bool> launched_;  // of all that was handed on
};

TEST_F(OperationJoinerTest, ARecordMeetsALaunchThatIsToldLater) {
  Launch(1);
  Kernel(2);
  Kernel(1);
  EndBatch();
  EXPECT_EQ(joiner_.totals().joined, 1u);
  Launch(2, 120);
  EXPECT_THAT(EndBatch(), ElementsAre(1));  // a launch of another thread may come before 2
  EXPECT_THAT(Finish(), ElementsAre(2));
  EXPECT_EQ(joiner_.totals().joined, 2u);
  EXPECT_EQ(joiner_.totals().unattributed, 0u);
  EXPECT_EQ(joiner_.totals().launch_delay_ns.total(), 50u + 30u);
  EXPECT_THAT(launched_, ElementsAre(true, true));
}

// A device that is fast fills many batches before the host's events are sent again.
TEST_F(OperationJoinerTest, LaunchesMayComeManyBatchesAfterTheirRecords) {
  Launch(1, 100);
  constexpr uint32_t kBatches = 4 * OperationJoiner::kPatience;
  static_assert(kBatches < OperationJoiner::kLongPatience);
  for (uint32_t i = 0; i < kBatches; ++i) {
    Kernel(2 + i, 200 + i);
    EndBatch();
  }
  EXPECT_EQ(joiner_.totals().unattributed, 0u);
  for (uint32_t i = 0; i < kBatches; ++i) Launch(2 + i, 190 + i);
  EndBatch();
  EXPECT_EQ(joiner_.totals().joined, kBatches);
  EXPECT_EQ(joiner_.totals().unattributed, 0u);
  // None comes any more: patience has an end.
  Kernel(1000, 2000);
  for (uint32_t i = 0; i <= OperationJoiner::kLongPatience; ++i) EndBatch();
  EXPECT_EQ(joiner_.totals().unattributed, 1u);
}

TEST_F(OperationJoinerTest, ARecordWhoseLaunchDoesNotComeGoesWithoutIt) {
  Kernel(5);
  // Launches of other records keep coming meanwhile: they change nothing for it.
  for (uint32_t i = 0; i < OperationJoiner::kPatience; ++i) {
    EXPECT_EQ(joiner_.totals().unattributed, 0u) << i;
    Launch(100 + i, 160);  // later than the record
    Kernel(100 + i, 170);
    EndBatch();
  }
  EndBatch();
  EXPECT_EQ(joiner_.totals().unattributed, 1u);
  EXPECT_EQ(joiner_.totals().joined, OperationJoiner::kPatience);
  EXPECT_FALSE(launched_.front());
}

TEST_F(OperationJoinerTest, WhereRecordingBeganLateEarlierLaunchesAreNotAwaited) {
  joiner_.BeginsLate();
  Kernel(5);
  Kernel(11);
  Launch(10);
  EXPECT_THAT(EndBatch(), IsEmpty());
  EXPECT_EQ(joiner_.totals().unattributed, 0u) << "launches of several threads come in no strict order";
  EXPECT_THAT(EndBatch(), ElementsAre(5));
  EXPECT_EQ(joiner_.totals().unattributed, 1u);
  Kernel(10);
  Launch(11, 120);
  EndBatch();
  Finish();
  EXPECT_EQ(joiner_.totals().joined, 2u);
  EXPECT_EQ(joiner_.totals().unattributed, 1u);
}

TEST_F(OperationJoinerTest, WithoutAnyLaunchesRecordsStillLeaveInTheirOrder) {
  for (const uint64_t c : {3, 1, 2}) Kernel(c);
  for (uint32_t i = 0; i < OperationJoiner::kPatience; ++i) EXPECT_THAT(EndBatch(), IsEmpty());
  Kernel(4);
  EXPECT_THAT(EndBatch(), ElementsAre(1, 2, 3));
  EXPECT_THAT(Finish(), ElementsAre(4));
  EXPECT_EQ(joiner_.totals().unattributed, 4u);
}

// Calls on non-blocking communicators are reported when NCCL has launched them, or later.
TEST_F(OperationJoinerTest, APlanMayBeToldAfterManyLaunches) {
  constexpr uint64_t kPlan = 9;
  constexpr uint32_t kCollective = 77;
  Launch(1);
  KernelRecord kernel{};
  kernel.correlation = 1;
  kernel.start_ns = 150;
  kernel.end_ns = 160;
  joiner_.AddCollectiveKernel(kernel, kCollective);
  Kernel(1);
  EndBatch();
  for (uint64_t c = 2; c < 2 + 2 * CorrelationRing::kFirstSlots; ++c) {
    Launch(c, 100 + c);
    Kernel(c, 200 + c);
  }
  EndBatch();
  CollectiveRecord call{};
  call.op = kCollective;
  call.comm = 1;
  call.plan = kPlan;
  collectives_.AddCall(call, false);
  PlanRecord plan{};
  plan.plan = kPlan;
  plan.correlation = 1;
  joiner_.AddPlan(plan);
  EndBatch();
  Finish();
  collectives_.Finish();
  ASSERT_EQ(collectives_.series().size(), 1u);
  EXPECT_EQ(collectives_.series()[0]->calls, 1u);
  EXPECT_EQ(collectives_.series()[0]->untimed_calls, 0u);
  EXPECT_EQ(collectives_.series()[0]->time_ns.total(), 10u);
}

CorrelationRing::Slot& AddLaunch(CorrelationRing& ring, uint64_t correlation) {
  CorrelationRing::Slot& slot = ring.Claim(correlation);
  slot.launched = true;
  return slot;
}

size_t KeptOf(const CorrelationRing& ring) {
  size_t kept = 0;
  ring.ForEach([&](const CorrelationRing::Slot&) { ++kept; });
  return kept;
}

TEST(CorrelationRing, KeepsLaunchesThatWaitHoweverFarApartTheirIdsAre) {
  CorrelationRing ring;
  constexpr uint64_t kLaunches = 200;
  for (uint64_t i = 0; i < kLaunches; ++i) AddLaunch(ring, 1 + i * 1000);
  EXPECT_EQ(KeptOf(ring), kLaunches);
  for (uint64_t i = 0; i < kLaunches; ++i) EXPECT_NE(ring.Find(1 + i * 1000), nullptr);
}

TEST(CorrelationRing, TwoIdsThatCollideMakeItGrowBySoMuchOnly) {
  CorrelationRing ring;
  constexpr uint64_t kFar = uint64_t{1} << 40;
  AddLaunch(ring, 1);
  AddLaunch(ring, 1 + kFar);
  EXPECT_EQ(ring.Find(1), nullptr) << "gave way";
  EXPECT_NE(ring.Find(1 + kFar), nullptr);
  AddLaunch(ring, 2 + CorrelationRing::kMaxSlotsPerLaunch * 4);
  EXPECT_LE(ring.slots(), CorrelationRing::kMaxSlotsPerLaunch * 4);
}

TEST_F(OperationJoinerTest, WhatWaitsIsBounded) {
  for (uint64_t c = 1; c <= OperationJoiner::kMaxWaiting + 3; ++c) Kernel(c);
  EXPECT_EQ(joiner_.totals().unattributed, 3u);
  EXPECT_EQ(Finish().size(), OperationJoiner::kMaxWaiting + 3);
}

}  // namespace
}  // namespace gpuprobe::model
