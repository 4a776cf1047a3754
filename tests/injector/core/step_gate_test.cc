#include "injector/core/step_gate.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "injector/core/call_clock.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/ledgers/stream.h"
#include "tests/injector/support/frames.h"

namespace gpuprobe::injector {
namespace {

using testing::TakeBatches;

StepRule Rule(const char* marker, uint64_t start = 0, uint64_t stop = UINT64_MAX, uint64_t every = 1) {
  StepRule rule;
  EXPECT_TRUE(ParseStepMarker(marker, &rule)) << marker;
  rule.start = start;
  rule.stop = stop;
  rule.every = every;
  return rule;
}

TEST(StepRule, RangesByNameAndByWhatComesAroundIt) {
  EXPECT_TRUE(Rule("nvtx:step").Matches("step"));
  EXPECT_FALSE(Rule("nvtx:step").Matches("step 1"));
  EXPECT_FALSE(Rule("nvtx:step").Matches("ste"));
  EXPECT_TRUE(Rule("nvtx:step*").Matches("step 1"));
  EXPECT_FALSE(Rule("nvtx:step*").Matches("a step"));
  EXPECT_TRUE(Rule("nvtx:*step").Matches("a step"));
  EXPECT_FALSE(Rule("nvtx:*step").Matches("a step 1"));
  EXPECT_TRUE(Rule("nvtx:*step*").Matches("a step 1"));
  EXPECT_FALSE(Rule("nvtx:*step*").Matches("epoch"));
  EXPECT_TRUE(Rule("nvtx:train*step").Matches("train one step"));
  EXPECT_FALSE(Rule("nvtx:train*step").Matches("train one step more"));
  EXPECT_TRUE(Rule("nvtx:*aab").Matches("aaaab")) << "what a star stands for is tried anew";
}

TEST(StepRule, CallsByOperationAndNumber) {
  EXPECT_EQ(Rule("collective:AllReduce/1").calls, 1u);
  EXPECT_EQ(Rule("collective:AllReduce/12").calls, 12u);
  EXPECT_EQ(Rule("collective:AllReduce/12").Text(), "AllReduce");
}

TEST(StepRule, WhatIsNoMarker) {
  StepRule rule;
  for (const std::string bad :
       {"", "nvtx:", "nvtx:*", "nvtx:^step$", "nvtx:step.*", "collective:AllReduce", "step", "kernel:adam",
        "collective:", "collective:AllReduce/", "collective:AllReduce/0", "collective:AllReduce/x",
        "collective:/4", "collective:AllReduce/99999999999"}) {
    EXPECT_FALSE(ParseStepMarker(bad, &rule)) << bad;
  }
  EXPECT_FALSE(ParseStepMarker("nvtx:" + std::string(129, 'x'), &rule));
}

StepRule Choose(const char* const* environment, int* rejected) {
  Settings settings;
  settings.Read(environment);
  const StepRule rule = ChooseSteps(&settings);
  *rejected = settings.rejected();
  return rule;
}

TEST(StepRule, FromTheEnvironment) {
  int rejected = 0;
  const char* some[] = {"GPUPROBE_STEP_MARKER=nvtx:step", "GPUPROBE_START_STEP=10", "GPUPROBE_STOP_STEP=40",
                        "GPUPROBE_EVERY_STEPS=10", nullptr};
  const StepRule rule = Choose(some, &rejected);
  EXPECT_EQ(rejected, 0);
  EXPECT_EQ(rule.marker, StepRule::Marker::kRange);
  std::string recorded;
  for (uint64_t step = 0; step < 60; ++step) recorded += rule.Records(step) ? std::to_string(step) + " " : "";
  EXPECT_EQ(recorded, "10 20 30 ");
}

TEST(StepRule, WithoutMarkerOrWithoutStepsToLeaveOutEverythingIsRecorded) {
  int rejected = 0;
  const char* marker_alone[] = {"GPUPROBE_STEP_MARKER=nvtx:step", nullptr};
  EXPECT_EQ(Choose(marker_alone, &rejected).marker, StepRule::Marker::kNone);
  EXPECT_EQ(rejected, 0);
  const char* steps_alone[] = {"GPUPROBE_START_STEP=10", "GPUPROBE_EVERY_STEPS=10", nullptr};
  EXPECT_EQ(Choose(steps_alone, &rejected).marker, StepRule::Marker::kNone);
  EXPECT_EQ(rejected, 2);
  const char* bad_marker[] = {"GPUPROBE_STEP_MARKER=step", "GPUPROBE_EVERY_STEPS=10", nullptr};
  EXPECT_EQ(Choose(bad_marker, &rejected).marker, StepRule::Marker::kNone);
  EXPECT_EQ(rejected, 2);
  const char* bad_stop[] = {"GPUPROBE_STEP_MARKER=nvtx:step", "GPUPROBE_START_STEP=5", "GPUPROBE_STOP_STEP=5",
                            nullptr};
  const StepRule open = Choose(bad_stop, &rejected);
  EXPECT_EQ(rejected, 1);
  EXPECT_TRUE(open.Records(1000));
}

class StepGateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stream_ = std::make_unique<Stream>();
    ASSERT_TRUE(stream_->Init(size_t{64} << 20));
  }
  void TearDown() override { step_gate.Init({}); }

  // A step of one launch, and one launch after it.
  void Step(uint64_t range, uint32_t correlation, bool recorded) {
    step_gate.Opened(1, range, "step");
    EXPECT_EQ(step_gate.Launched(correlation), recorded) << correlation;
    step_gate.Closed(range);
    EXPECT_FALSE(step_gate.Launched(correlation + 1));
  }
  v1::RecordedSteps Told(bool final) {
    step_gate.TellTimes();
    step_gate.ReportSteps(
        final,
        [](void* builder, const wire::RecordedStepRow& step) noexcept {
          static_cast<BatchBuilder*>(builder)->Add(step);
        },
        &stream_->builder);
    stream_->builder.Seal();
    const auto batches = TakeBatches(&stream_->queue);
    EXPECT_EQ(batches.size(), 1u);
    steps_begun_ = batches.empty() ? 0 : batches[0].self().steps_begun();
    return batches.empty() ? v1::RecordedSteps() : batches[0].recorded_steps();
  }

  std::unique_ptr<Stream> stream_;
  uint64_t steps_begun_ = 0;
};

TEST_F(StepGateTest, OnlyLaunchesOfRecordedStepsAreKept) {
  step_gate.Init(Rule("nvtx:step", 1, UINT64_MAX, 2));
  EXPECT_FALSE(step_gate.Launched(1));
  for (uint32_t i = 0; i < 6; ++i) Step(100 + i, 10 + 2 * i, i % 2 == 1);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(step_gate.KeepsWork(10 + 2 * i, 1000), i % 2 == 1) << i;
    EXPECT_FALSE(step_gate.KeepsWork(11 + 2 * i, 1000)) << i;
  }
  EXPECT_FALSE(step_gate.KeepsWork(5, 1000)) << "its launch was not seen";
  EXPECT_FALSE(step_gate.IsRecorded(12 + StepGate::kLaunches)) << "another launch at the same place";
  EXPECT_EQ(step_gate.steps_begun(), 6u);
}

TEST_F(StepGateTest, OfNestedRangesTheOuterOneAndOfThreadsTheFirst) {
  step_gate.Init(Rule("nvtx:step", 1));
  step_gate.Opened(1, 10, "step");
  step_gate.Opened(1, 11, "step");
  step_gate.Closed(11);
  step_gate.Opened(2, 12, "step");
  step_gate.Closed(12);
  EXPECT_EQ(step_gate.steps_begun(), 1u);
  step_gate.Closed(10);
  step_gate.Opened(2, 13, "step");
  EXPECT_FALSE(step_gate.Launched(1));
  step_gate.Opened(1, 14, "step");
  EXPECT_TRUE(step_gate.Launched(2));
}

TEST_F(StepGateTest, StepsAreToldWithWhatTheyBeginWith) {
  step_gate.Init(Rule("nvtx:step", 2, UINT64_MAX, 2));
  const uint64_t before_ns = NowNs();
  Step(100, 10, false);
  Step(101, 20, false);
  Step(102, 30, true);
  Step(103, 40, false);
  Step(104, 50, true);
  const uint64_t after_ns = NowNs();
  // Out of order, as records come.
  EXPECT_FALSE(step_gate.KeepsWork(41, before_ns + 700));
  EXPECT_FALSE(step_gate.KeepsWork(21, before_ns + 500));
  EXPECT_FALSE(step_gate.KeepsWork(10, before_ns + 300));
  EXPECT_FALSE(step_gate.KeepsWork(51, before_ns + 900)) << "after the last one";
  EXPECT_FALSE(step_gate.KeepsWait(before_ns - 500, before_ns - 300));
  EXPECT_FALSE(step_gate.KeepsWait(before_ns - 900, before_ns - 700));
  EXPECT_EQ(Told(false).index_delta_size(), 0) << "work before them may not have been heard of yet";
  const v1::RecordedSteps steps = Told(false);
  EXPECT_EQ(steps_begun_, 5u);
  ASSERT_EQ(steps.index_delta_size(), 2);
  EXPECT_EQ(steps.index_delta(0), 2);
  EXPECT_EQ(steps.index_delta(1), 2);
  EXPECT_EQ(Told(false).index_delta_size(), 0) << "once";
  EXPECT_EQ(Told(true).index_delta_size(), 0);
  // Times from the batch's base on are checked by what they are relative to each other.
  EXPECT_GT(steps.duration(0), 0u);
  EXPECT_LT(steps.duration(0) + steps.duration(1), after_ns - before_ns);
  const auto first_earlier = static_cast<uint64_t>(steps.earlier_end(0));
  const auto second_earlier = static_cast<uint64_t>(steps.earlier_end(1));
  const uint64_t begin_to_begin = steps.duration(0) + static_cast<uint64_t>(steps.begin_delta(1));
  EXPECT_EQ(second_earlier, first_earlier + begin_to_begin - 200);
  EXPECT_GT(steps.earlier_launch(0), 0u);
  EXPECT_EQ(steps.wait_duration(0), 200u);
  EXPECT_EQ(steps.wait_start(0), first_earlier + 500 + 500);
  EXPECT_EQ(steps.wait_duration(1), 0u);
}

TEST_F(StepGateTest, TimesAreInARecordedStepFromItsBeginToItsEnd) {
  step_gate.Init(Rule("nvtx:step", 1));
  const uint64_t before_ns = NowNs();
  Step(100, 10, false);
  const uint64_t between_ns = NowNs();
  step_gate.Opened(1, 101, "step");
  const uint64_t inside_ns = NowNs();
  EXPECT_TRUE(step_gate.Holds(inside_ns));
  EXPECT_FALSE(step_gate.Holds(before_ns));
  EXPECT_FALSE(step_gate.Overlaps(before_ns, between_ns));
  EXPECT_TRUE(step_gate.Overlaps(before_ns, inside_ns));
  step_gate.Closed(101);
  const uint64_t after_ns = NowNs() + 1;
  EXPECT_TRUE(step_gate.Holds(inside_ns));
  EXPECT_FALSE(step_gate.Holds(after_ns));
  EXPECT_FALSE(step_gate.Overlaps(after_ns, after_ns + 1000));
  EXPECT_TRUE(step_gate.KeepsWait(inside_ns, after_ns + 1000));
  EXPECT_FALSE(step_gate.KeepsWait(after_ns, after_ns + 1000));
}

TEST_F(StepGateTest, AStepThatIsNotOverIsToldAtTheEnd) {
  step_gate.Init(Rule("nvtx:step", 1));
  step_gate.Opened(1, 100, "step");
  step_gate.Closed(100);
  step_gate.Opened(1, 101, "step");
  EXPECT_EQ(Told(false).index_delta_size(), 0);
  EXPECT_EQ(Told(false).index_delta_size(), 0);
  EXPECT_EQ(Told(true).index_delta_size(), 1);
}

TEST_F(StepGateTest, CallsAreCountedAndStepsFollowOneAnother) {
  step_gate.Init(Rule("collective:AllReduce/2", 1, 2));
  EXPECT_FALSE(step_gate.Launched(1));
  step_gate.Issued("AllReduce");
  step_gate.Issued("AllGather");
  EXPECT_FALSE(step_gate.Launched(2));
  step_gate.Issued("AllReduce");
  EXPECT_TRUE(step_gate.Launched(3));
  step_gate.Issued("AllReduce");
  EXPECT_TRUE(step_gate.Launched(4));
  step_gate.Issued("AllReduce");
  EXPECT_FALSE(step_gate.Launched(5));
}

StepRule OnDemand(const char* marker = nullptr) {
  StepRule rule = marker == nullptr ? StepRule() : Rule(marker);
  rule.on_demand = true;
  return rule;
}

CaptureWindow Steps(uint64_t begin, uint64_t end) {
  return {.clock = wire::CaptureClock::kCaptureClockMarker, .begin = begin, .end = end};
}

TEST(StepRule, OfLevelIdle) {
  int rejected = 0;
  const char* idle[] = {"GPUPROBE_LEVEL=idle", "GPUPROBE_STEP_MARKER=nvtx:step", nullptr};
  EXPECT_TRUE(Choose(idle, &rejected).on_demand);
  EXPECT_EQ(Choose(idle, &rejected).marker, StepRule::Marker::kRange);
  EXPECT_EQ(rejected, 0);
  const char* steps[] = {"GPUPROBE_LEVEL=idle", "GPUPROBE_STEP_MARKER=nvtx:step", "GPUPROBE_START_STEP=3",
                         nullptr};
  EXPECT_TRUE(Choose(steps, &rejected).on_demand);
  EXPECT_EQ(rejected, 1) << "a capture chooses the steps";
  const char* wrong[] = {"GPUPROBE_LEVEL=idel", nullptr};
  EXPECT_FALSE(Choose(wrong, &rejected).on_demand);
  EXPECT_EQ(rejected, 1);
}

TEST(StepRule, OfLevelCalls) {
  int rejected = 0;
  const char* calls[] = {"GPUPROBE_LEVEL=calls", "GPUPROBE_STEP_MARKER=nvtx:step", nullptr};
  EXPECT_TRUE(Choose(calls, &rejected).on_demand);
  EXPECT_TRUE(Choose(calls, &rejected).traces_calls);
  const char* idle[] = {"GPUPROBE_LEVEL=idle", nullptr};
  EXPECT_FALSE(Choose(idle, &rejected).traces_calls);
  EXPECT_EQ(rejected, 0);
}

TEST_F(StepGateTest, AtLevelCallsEachStepIsTakenOnce) {
  StepRule rule = OnDemand("nvtx:step");
  rule.traces_calls = true;
  step_gate.Init(rule);
  uint64_t step = 0;
  EXPECT_FALSE(step_gate.TakeBegun(&step));
  for (uint64_t i = 0; i < 3; ++i) {
    step_gate.Opened(1, 100 + i, "step");
    EXPECT_TRUE(step_gate.TakeBegun(&step));
    EXPECT_EQ(step, i);
    EXPECT_FALSE(step_gate.TakeBegun(&step));
    step_gate.Closed(100 + i);
  }
  EXPECT_TRUE(step_gate.rests()) << "launches are left alone";
}

TEST_F(StepGateTest, OnDemandNothingIsRecordedButWhatACaptureAsksFor) {
  step_gate.Init(OnDemand("nvtx:step"));
  EXPECT_TRUE(step_gate.rests());
  for (uint32_t i = 0; i < 3; ++i) Step(100 + i, 10 + 2 * i, false);
  step_gate.Wake();
  EXPECT_FALSE(step_gate.rests());
  EXPECT_TRUE(step_gate.Arm(Steps(4, 6)));
  for (uint32_t i = 3; i < 6; ++i) {
    EXPECT_FALSE(step_gate.Ended());
    Step(100 + i, 10 + 2 * i, i >= 4);
  }
  EXPECT_TRUE(step_gate.Ended()) << "with its last step";
  EXPECT_EQ(step_gate.steps_captured(), 2u);
  Step(106, 22, false);
  EXPECT_FALSE(step_gate.KeepsWork(17, 1000));
  EXPECT_TRUE(step_gate.KeepsWork(18, 1000));
  EXPECT_EQ(step_gate.work_kept(), 1u);
  EXPECT_EQ(step_gate.work_behind(), 0u);
  EXPECT_FALSE(step_gate.KeepsWork(22, 1000));
  EXPECT_EQ(step_gate.work_behind(), 1u) << "the device has passed it";
  step_gate.Disarm();
  step_gate.Rest();
  const v1::RecordedSteps told = Told(true);
  ASSERT_EQ(told.index_delta_size(), 2);
  EXPECT_EQ(told.index_delta(0), 4);
  step_gate.Wake();
  EXPECT_TRUE(step_gate.Arm(Steps(8, 9)));
  Step(107, 30, false);
  Step(108, 32, true);
  EXPECT_EQ(step_gate.steps_captured(), 1u);
}

TEST_F(StepGateTest, ACaptureWhoseBeginHasPassedIsRefused) {
  step_gate.Init(OnDemand("nvtx:step"));
  for (uint32_t i = 0; i < 3; ++i) Step(100 + i, 10 + 2 * i, false);
  step_gate.Wake();
  EXPECT_FALSE(step_gate.Arm(Steps(2, 5)));
  Step(103, 20, false);
  EXPECT_TRUE(step_gate.Arm(Steps(4, 5)));
  Step(104, 22, true);
}

TEST_F(StepGateTest, ACaptureThatIsCutOffRecordsNoMore) {
  step_gate.Init(OnDemand("nvtx:step"));
  step_gate.Wake();
  EXPECT_TRUE(step_gate.Arm(Steps(0, 100)));
  Step(100, 10, true);
  step_gate.Opened(1, 101, "step");
  EXPECT_TRUE(step_gate.Launched(20));
  step_gate.Disarm();
  EXPECT_TRUE(step_gate.Ended());
  EXPECT_FALSE(step_gate.Launched(21)) << "in the middle of a step";
  step_gate.Closed(101);
  Step(102, 30, false);
  EXPECT_EQ(Told(true).index_delta_size(), 2);
}

TEST_F(StepGateTest, CallsOnACommunicatorOpenAndCloseACapture) {
  step_gate.Init(OnDemand());
  call_clock.Reset();
  const auto call = [](uint64_t number) {
    call_clock.Note(7, 2, number, 1, number);
    step_gate.Reached(7, number);
  };
  for (uint64_t number = 0; number < 10; ++number) call(number);
  step_gate.Wake();
  CaptureWindow window{.clock = wire::CaptureClock::kCaptureClockCalls,
                       .begin = 10,
                       .end = 16,
                       .communicator = 7,
                       .calls_per_step = 3};
  EXPECT_FALSE(step_gate.Arm(window)) << "call 9 was issued, so that what follows is of the first step";
  window.begin = 13;
  window.end = 19;
  EXPECT_TRUE(step_gate.Arm(window));
  call(10);
  call(11);
  EXPECT_FALSE(step_gate.Launched(1));
  call(12);
  EXPECT_TRUE(step_gate.Launched(2));
  step_gate.Reached(8, 100);
  EXPECT_TRUE(step_gate.is_open()) << "another communicator";
  for (uint64_t number = 13; number < 18; ++number) call(number);
  EXPECT_TRUE(step_gate.Launched(3));
  EXPECT_FALSE(step_gate.Ended());
  call(18);
  EXPECT_FALSE(step_gate.Launched(4));
  EXPECT_TRUE(step_gate.Ended());
  const v1::RecordedSteps told = Told(true);
  ASSERT_EQ(told.index_delta_size(), 2);
  EXPECT_EQ(told.index_delta(0), 4) << "call 13, of three a step";
  EXPECT_EQ(told.index_delta(1), 1);
  call_clock.Reset();
}

TEST_F(StepGateTest, AWindowOfTimeOpensAndClosesByTheClock) {
  step_gate.Init(OnDemand());
  step_gate.Wake();
  EXPECT_TRUE(step_gate.Arm({.clock = wire::CaptureClock::kCaptureClockTime, .begin = 1000, .end = 2000}));
  EXPECT_FALSE(step_gate.KeepTime(999));
  EXPECT_FALSE(step_gate.Launched(1));
  EXPECT_TRUE(step_gate.KeepTime(1001));
  EXPECT_TRUE(step_gate.Launched(2));
  EXPECT_FALSE(step_gate.KeepTime(1500)) << "once";
  EXPECT_FALSE(step_gate.Ended());
  EXPECT_FALSE(step_gate.KeepTime(2000));
  EXPECT_TRUE(step_gate.Ended());
  EXPECT_FALSE(step_gate.Launched(3));
  EXPECT_EQ(Told(true).index_delta_size(), 0) << "it is no step";
}

TEST_F(StepGateTest, MoreStepsThanAreRememberedLoseTheOldest) {
  step_gate.Init(Rule("nvtx:step", 0, UINT64_MAX - 1));
  for (uint32_t i = 0; i < StepGate::kWindows + 10; ++i) Step(100 + i, 10 + 2 * i, true);
  const v1::RecordedSteps steps = Told(true);
  ASSERT_EQ(steps.index_delta_size(), static_cast<int>(StepGate::kWindows) - 1);
  EXPECT_EQ(steps.index_delta(0), 11);
}

}  // namespace
}  // namespace gpuprobe::injector
