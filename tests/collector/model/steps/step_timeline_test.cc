#include "collector/model/steps/step_timeline.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace gpuprobe::model {
namespace {

constexpr uint64_t kUs = 1000;

StepOperation Compute(uint64_t launch_us, uint64_t start_us, uint64_t end_us) {
  return {.start_ns = start_us * kUs, .end_ns = end_us * kUs, .launch_ns = launch_us * kUs, .launched = true};
}
StepOperation Of(WorkClass work, uint64_t launch_us, uint64_t start_us, uint64_t end_us) {
  StepOperation operation = Compute(launch_us, start_us, end_us);
  operation.work = work;
  return operation;
}

class StepTimelineTest : public ::testing::Test {
 protected:
  StepRecord Measure(uint64_t start_us, uint64_t end_us) {
    std::vector<StepPhase> phases = first_phases_;
    phases.resize(operations_.size(), StepPhase::kForward);
    const StepRecord r = MeasureStep({.start_ns = start_us * kUs,
                                      .end_ns = end_us * kUs,
                                      .operations = operations_,
                                      .own = own_ == 0 ? operations_.size() : own_,
                                      .previous_launch_ns = previous_launch_us_ * kUs,
                                      .host = {.blocked = blocked_, .memory = memory_, .input = input_}},
                                     phases);
    EXPECT_EQ(r.compute_ns + r.exposed_comm_ns + r.copy_ns + r.idle_ns, r.total_ns());
    EXPECT_EQ(r.host_ns() + r.input_ns + r.launch_gap_ns + r.unknown_ns, r.idle_ns);
    EXPECT_LE(r.pause_after_copy_ns, r.pause_ns);
    EXPECT_EQ(std::accumulate(r.phase_ns.begin(), r.phase_ns.end(), uint64_t{0}), r.total_ns());
    return r;
  }
  static uint64_t Phase(const StepRecord& r, StepPhase phase) {
    return r.phase_ns[static_cast<size_t>(phase)];
  }

  std::vector<StepOperation> operations_;
  size_t own_ = 0;
  std::vector<StepPhase> first_phases_;
  uint64_t previous_launch_us_ = 0;
  std::vector<HostInterval> blocked_;
  std::vector<HostInterval> memory_;
  std::vector<HostInterval> input_;
};

TEST_F(StepTimelineTest, CommunicationIsExposedWhereNoComputeRuns) {
  operations_ = {Compute(0, 10, 50), Of(WorkClass::kCommunication, 1, 30, 80), Compute(2, 60, 70),
                 Of(WorkClass::kCopyToDevice, 3, 75, 90)};
  const StepRecord r = Measure(10, 90);
  EXPECT_EQ(r.compute_ns, 50 * kUs);
  EXPECT_EQ(r.comm_ns, 50 * kUs);
  EXPECT_EQ(r.exposed_comm_ns, 20 * kUs);
  EXPECT_EQ(r.overlapped_comm_ns(), 30 * kUs);
  EXPECT_EQ(r.copy_ns, 10 * kUs);
  EXPECT_EQ(r.idle_ns, 0);
  EXPECT_EQ(Phase(r, StepPhase::kForward), 50 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kCommunication), 20 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kH2d), 10 * kUs);
}

TEST_F(StepTimelineTest, IdleTimeBelongsToThePhaseThatTheDeviceWaitsFor) {
  operations_ = {Compute(0, 0, 10), Compute(30, 34, 50), Of(WorkClass::kCommunication, 60, 64, 70)};
  const std::vector<StepPhase> phases = {StepPhase::kForward, StepPhase::kBackward, StepPhase::kBackward};
  const StepRecord r = MeasureStep({.start_ns = 0,
                                    .end_ns = 70 * kUs,
                                    .operations = operations_,
                                    .own = 3,
                                    .previous_launch_ns = 0,
                                    .host = {}},
                                   phases);
  EXPECT_EQ(Phase(r, StepPhase::kForward), 10 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kBackward), (16 + 24 + 14) * kUs);
  EXPECT_EQ(r.phase_busy_ns(StepPhase::kBackward), 16 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kCommunication), 6 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kOther), 0);
}

TEST_F(StepTimelineTest, KernelsOnSeveralStreamsCountOnce) {
  operations_ = {Compute(0, 0, 40), Compute(1, 10, 30), Compute(2, 20, 60)};
  EXPECT_EQ(Measure(0, 60).compute_ns, 60 * kUs);
}

TEST_F(StepTimelineTest, WhatTheNextStepRunsEarlyCountsHere) {
  operations_ = {Compute(0, 0, 10), Of(WorkClass::kCommunication, 1, 10, 50), Compute(2, 20, 70)};
  own_ = 2;
  const StepRecord r = Measure(0, 50);
  EXPECT_EQ(r.compute_ns, 40 * kUs);
  EXPECT_EQ(r.exposed_comm_ns, 10 * kUs);
  EXPECT_EQ(r.operations, 2);
}

TEST_F(StepTimelineTest, ALateLaunchIsTheHosts) {
  operations_ = {Compute(0, 0, 10), Compute(30, 34, 50)};
  const StepRecord r = Measure(0, 50);
  EXPECT_EQ(r.host_bound_ns, 20 * kUs);
  EXPECT_EQ(r.launch_gap_ns, 4 * kUs);
}

TEST_F(StepTimelineTest, WhatWasLaunchedInTimeAndStartsLateIsALaunchGap) {
  operations_ = {Compute(0, 0, 10), Compute(1, 34, 50)};
  EXPECT_EQ(Measure(0, 50).launch_gap_ns, 24 * kUs);
}

TEST_F(StepTimelineTest, AHostThatWaitedForTheDeviceToRunDryIsSynchronisation) {
  operations_ = {Compute(0, 0, 100), Compute(130, 134, 200)};
  blocked_ = {{.start_ns = 2 * kUs, .end_ns = 105 * kUs}};
  const StepRecord r = Measure(0, 200);
  EXPECT_EQ(r.sync_ns, 30 * kUs);
  EXPECT_EQ(r.launch_gap_ns, 4 * kUs);
  EXPECT_EQ(r.host_bound_ns, 0);
}

TEST_F(StepTimelineTest, ASynchronisationThatEndedBeforeIsNotTheReason) {
  operations_ = {Compute(0, 0, 100), Compute(130, 134, 200)};
  blocked_ = {{.start_ns = 2 * kUs, .end_ns = 90 * kUs}};
  EXPECT_EQ(Measure(0, 200).host_bound_ns, 30 * kUs);
}

TEST_F(StepTimelineTest, ASilentHostBeforeTheStepsFirstLaunchWaitsForInput) {
  previous_launch_us_ = 1;
  operations_ = {Of(WorkClass::kCopyToDevice, 5000, 5010, 5020), Compute(5010, 5030, 6000)};
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.input_ns, 4900 * kUs);
  EXPECT_EQ(r.launch_gap_ns, 10 * kUs + 10 * kUs);
  EXPECT_EQ(Phase(r, StepPhase::kInput), 4900 * kUs);
}

TEST_F(StepTimelineTest, TheUpdateOfTheStepBeforeIsNotTheFirstWork) {
  blocked_ = {{.start_ns = 20 * kUs, .end_ns = 210 * kUs}};
  operations_ = {Compute(10, 100, 200), Of(WorkClass::kCopyToDevice, 5000, 5010, 5020),
                 Compute(5010, 5030, 5500), Compute(5020, 5500, 6000)};
  EXPECT_EQ(Measure(100, 6000).input_ns, 0);
  first_phases_ = {StepPhase::kOptimizer};
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.input_ns, 4790 * kUs);
  EXPECT_EQ(r.sync_ns, 10 * kUs);
}

TEST_F(StepTimelineTest, AtTheStepsBeginningASynchronisationLastsUntilItReturns) {
  previous_launch_us_ = 1;
  blocked_ = {{.start_ns = 2 * kUs, .end_ns = 110 * kUs}};
  operations_ = {Of(WorkClass::kCopyToDevice, 5000, 5010, 5020), Compute(5010, 5030, 6000)};
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.sync_ns, 10 * kUs);
  EXPECT_EQ(r.input_ns, 4890 * kUs);
}

TEST_F(StepTimelineTest, ALoopsOwnCodeBetweenStepsIsNoInput) {
  previous_launch_us_ = 80;
  operations_ = {Compute(120, 124, 200)};
  const StepRecord r = Measure(100, 200);
  EXPECT_EQ(r.input_ns, 0);
  EXPECT_EQ(r.host_bound_ns, 20 * kUs);
}

TEST_F(StepTimelineTest, ASilenceThatNoCopyEndsIsAPauseOfUnknownCause) {
  previous_launch_us_ = 1;
  operations_ = {Compute(5000, 5010, 6000)};
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.pause_ns, 4900 * kUs);
  EXPECT_EQ(r.input_ns, 0);
  EXPECT_EQ(r.pause_after_copy_ns, 0);
  EXPECT_EQ(Phase(r, StepPhase::kInput), 0);
}

TEST_F(StepTimelineTest, ARangeNamedAfterLoadingMakesASilenceInput) {
  previous_launch_us_ = 1;
  operations_ = {Compute(5000, 5010, 6000)};
  input_ = {{.start_ns = 90 * kUs, .end_ns = 4000 * kUs}};
  EXPECT_EQ(Measure(100, 6000).input_ns, 4900 * kUs);
  input_ = {{.start_ns = 90 * kUs, .end_ns = 400 * kUs}};
  EXPECT_EQ(Measure(100, 6000).pause_ns, 4900 * kUs);
}

TEST_F(StepTimelineTest, ASilenceWithinTheStepIsNoInputAlthoughACopyEndsIt) {
  operations_ = {Compute(0, 0, 4), Compute(1, 4, 7), Compute(2, 7, 10),
                 Of(WorkClass::kCopyToDevice, 3000, 3004, 3050)};
  EXPECT_EQ(Measure(0, 3050).pause_ns, 2990 * kUs);
}

TEST_F(StepTimelineTest, CallsThatAllocateExplainASilenceIfTheyTakeHalfOfIt) {
  previous_launch_us_ = 1;
  operations_ = {Of(WorkClass::kCopyToDevice, 5000, 5010, 5020), Compute(5010, 5030, 6000)};
  for (uint64_t at = 200; at < 4900; at += 100)
    memory_.push_back({.start_ns = at * kUs, .end_ns = (at + 60) * kUs});
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.memory_ns, 4900 * kUs);
  EXPECT_EQ(r.input_ns, 0);
  EXPECT_EQ(r.memory_calls, memory_.size());
  memory_.resize(20);
  EXPECT_EQ(Measure(100, 6000).memory_ns, 0);
  EXPECT_EQ(Measure(100, 6000).input_ns, 4900 * kUs);
}

TEST_F(StepTimelineTest, ASilenceAfterCopiesToTheHostIsNoInput) {
  previous_launch_us_ = 1;
  blocked_ = {{.start_ns = 2 * kUs, .end_ns = 110 * kUs}};
  operations_ = {Of(WorkClass::kCopyToDevice, 5000, 5010, 5020), Compute(5010, 5030, 6000)};
  operations_[0].after_copies_out_us = 400;
  const StepRecord r = Measure(100, 6000);
  EXPECT_EQ(r.input_ns, 0);
  EXPECT_EQ(r.pause_ns, 4900 * kUs) << "the call waited for these copies";
  EXPECT_EQ(r.pause_after_copy_ns, 4900 * kUs);
  operations_[0].after_copies_out_us = 2;  // a loss was read
  EXPECT_EQ(Measure(100, 6000).input_ns, 4890 * kUs);
}

TEST_F(StepTimelineTest, AHostThatLaunchesSlowlyButSteadilyDoesNotPause) {
  for (uint64_t i = 0; i < 20; ++i) operations_.push_back(Compute(i * 500, i * 500 + 4, i * 500 + 10));
  const StepRecord r = Measure(0, 19 * 500 + 10);
  EXPECT_EQ(r.pause_ns, 0);
  EXPECT_EQ(r.host_bound_ns, 19 * 490 * kUs);
}

TEST_F(StepTimelineTest, IdleBeforeAnOperationWhoseLaunchWasLostIsUnknown) {
  operations_ = {Compute(0, 0, 10), Compute(0, 34, 50)};
  operations_[1].launched = false;
  EXPECT_EQ(Measure(0, 50).unknown_ns, 24 * kUs);
}

// Against the same definitions, tick by tick.
TEST_F(StepTimelineTest, RandomOperationsAgreeWithCountingTicks) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    operations_.clear();
    blocked_.clear();
    constexpr uint64_t kEnd = 400;
    const size_t count = 1 + random() % 30;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t start = random() % kEnd;
      const auto work = static_cast<WorkClass>(random() % 5);
      operations_.push_back(Of(work, random() % (start + 1), start, start + random() % 40));
    }
    const StepRecord r = Measure(0, kEnd);
    uint64_t compute = 0;
    uint64_t comm = 0;
    uint64_t exposed = 0;
    uint64_t copy = 0;
    for (uint64_t tick = 0; tick < kEnd; ++tick) {
      bool computes = false;
      bool communicates = false;
      bool copies = false;
      for (const StepOperation& o : operations_) {
        if (o.start_ns > tick * kUs || o.end_ns <= tick * kUs) continue;
        computes = computes || o.work == WorkClass::kCompute;
        communicates = communicates || o.work == WorkClass::kCommunication;
        copies = copies || (o.work != WorkClass::kCompute && o.work != WorkClass::kCommunication);
      }
      compute += computes ? kUs : 0;
      comm += communicates ? kUs : 0;
      exposed += communicates && !computes ? kUs : 0;
      copy += copies && !communicates && !computes ? kUs : 0;
    }
    EXPECT_EQ(r.compute_ns, compute);
    EXPECT_EQ(r.comm_ns, comm);
    EXPECT_EQ(r.exposed_comm_ns, exposed);
    EXPECT_EQ(r.copy_ns, copy);
  }
}

}  // namespace
}  // namespace gpuprobe::model
