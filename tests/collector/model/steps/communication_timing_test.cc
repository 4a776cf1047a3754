#include "collector/model/steps/communication_timing.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuprobe::model {
namespace {

constexpr uint32_t kReduce = 7;

StepOperation Compute(uint64_t start_ns, uint64_t end_ns) {
  return {.start_ns = start_ns, .end_ns = end_ns, .token = 1, .coarse = 1, .launched = true};
}

StepOperation Reduction(uint64_t start_ns, uint64_t end_ns) {
  return {.start_ns = start_ns,
          .end_ns = end_ns,
          .token = kReduce,
          .coarse = kReduce,
          .work = WorkClass::kCommunication,
          .launched = true};
}

// Forward until 100, backward until 300; two reductions in backward, one of which goes on after it.
struct Step {
  std::vector<StepOperation> operations = {Compute(0, 100), Compute(110, 200), Reduction(150, 220),
                                           Compute(210, 300), Reduction(230, 350)};
  std::vector<StepPhase> phases = {StepPhase::kForward, StepPhase::kBackward, StepPhase::kBackward,
                                   StepPhase::kBackward, StepPhase::kBackward};
  StepRecord record{.start_ns = 0, .end_ns = 350};
};

TEST(CommunicationTiming, EachCallHasItsPlace) {
  const Step step;
  CommunicationTiming timing;
  for (int i = 0; i < 3; ++i) timing.AddStep(step.operations, 5, step.phases, step.record, std::nullopt);
  ASSERT_EQ(timing.calls().size(), 2);
  const CommunicationTiming::Call& first = timing.calls().at({kReduce, 0});
  EXPECT_EQ(first.steps, 3);
  EXPECT_EQ(first.after_backward_ns, 3 * 40);
  EXPECT_EQ(first.time_ns, 3 * 70);
  EXPECT_EQ(first.hidden_ns, 3 * (50 + 10));
  const CommunicationTiming::Call& second = timing.calls().at({kReduce, 1});
  EXPECT_EQ(second.after_backward_ns, 3 * 120);
  EXPECT_EQ(second.hidden_ns, 3 * 70);
}

TEST(CommunicationTiming, WhatForwardLaunchesIsToldApart) {
  Step step;
  step.phases[2] = StepPhase::kForward;
  step.record.phase_ns[static_cast<size_t>(StepPhase::kForward)] = 100;
  CommunicationTiming timing;
  timing.AddStep(step.operations, 5, step.phases, step.record, std::nullopt);
  EXPECT_EQ(timing.forward_compute_ns(), 100);
  EXPECT_EQ(timing.calls().at({kReduce, 0}).forward_ns, 70);
  EXPECT_EQ(timing.calls().at({kReduce, 0}).forward_hidden_ns, 60);
  EXPECT_EQ(timing.calls().at({kReduce, 1}).forward_steps, 0);
}

TEST(CommunicationTiming, OfTheFirstStepsTheWarmUpIsLeftOut) {
  const Step step;
  Step slow;
  slow.record.end_ns += 10 * slow.record.total_ns();
  CommunicationTiming timing;
  for (uint64_t i = 0; i < 5; ++i) {
    const Step& each = i < 2 ? slow : step;
    timing.AddStep(each.operations, 5, each.phases, each.record, i);
  }
  EXPECT_EQ(timing.steps(), 0);
  timing.KeepFrom(2);
  timing.AddStep(step.operations, 5, step.phases, step.record, std::nullopt);
  EXPECT_EQ(timing.steps(), 4);
  EXPECT_EQ(timing.calls().at({kReduce, 0}).steps, 4);
  EXPECT_EQ(timing.calls().at({kReduce, 0}).time_ns, 4 * 70);
}

}  // namespace
}  // namespace gpuprobe::model
