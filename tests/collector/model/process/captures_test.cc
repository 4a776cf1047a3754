#include "collector/model/process/captures.h"

#include <gtest/gtest.h>

namespace gpuprobe::model {
namespace {

void Arm(Captures& captures, uint64_t id, v1::CaptureClock clock) {
  v1::CaptureState state;
  state.set_id(id);
  state.set_clock(clock);
  state.set_phase(v1::CAPTURE_PHASE_ARMED);
  captures.On(state);
}

RecordedStepRecord RecordedStep(uint64_t index) {
  RecordedStepRecord step{};
  step.index = index;
  step.begin_ns = 1000 * index;
  step.end_ns = 1000 * index + 500;
  return step;
}

TEST(Captures, StepsThatFollowEachOtherAreOneWindow) {
  Captures captures;
  EXPECT_EQ(captures.clock(), v1::CAPTURE_CLOCK_NONE);
  Arm(captures, 1, v1::CAPTURE_CLOCK_MARKER);
  captures.On(RecordedStep(4));
  captures.On(RecordedStep(5));
  Arm(captures, 2, v1::CAPTURE_CLOCK_MARKER);
  captures.On(RecordedStep(6));
  EXPECT_EQ(captures.clock(), v1::CAPTURE_CLOCK_MARKER);
  ASSERT_EQ(captures.windows().size(), 2u) << "another capture begins another one";
  EXPECT_EQ(captures.windows()[0].first, 4u);
  EXPECT_EQ(captures.windows()[0].last, 5u);
  EXPECT_EQ(captures.windows()[0].start_ns, 4000u);
  EXPECT_EQ(captures.windows()[0].end_ns, 5500u);
  EXPECT_EQ(captures.windows()[1].first, 6u);
}

TEST(Captures, AWindowOfTimeHasNoSteps) {
  Captures captures;
  Arm(captures, 1, v1::CAPTURE_CLOCK_TIME);
  RecordedStepRecord window = RecordedStep(0);
  window.has_no_steps = true;
  captures.On(window);
  ASSERT_EQ(captures.windows().size(), 1u);
  EXPECT_FALSE(captures.windows()[0].has_steps);
}

TEST(Captures, AQuestionDoesNotChangeWhatWasCaptured) {
  Captures captures;
  Arm(captures, 1, v1::CAPTURE_CLOCK_CALLS);
  v1::CaptureState answer;
  answer.set_id(2);
  captures.On(answer);
  EXPECT_EQ(captures.clock(), v1::CAPTURE_CLOCK_CALLS);
  EXPECT_EQ(captures.state().id(), 2u);
}

TEST(Captures, TheOldestOfManyAreForgotten) {
  Captures captures;
  for (uint64_t i = 0; i < Captures::kMost + 5; ++i) captures.On(RecordedStep(10 * i));
  ASSERT_EQ(captures.windows().size(), Captures::kMost);
  EXPECT_EQ(captures.windows().front().first, 50u);
}

}  // namespace
}  // namespace gpuprobe::model
