#include "collector/model/steps/communication_timing.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
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

// A step as its kernels follow each other: f forward, b backward, r a reduction in backward, R one in
// forward, o the optimizer, C a copy of input, '.' what may be backward or the optimizer.
CommunicationTiming TimingOf(std::string_view kernels) {
  std::vector<StepOperation> operations;
  std::vector<StepPhase> phases;
  uint64_t at = 0;
  for (const char each : kernels) {
    at += 10;
    const bool reduces = each == 'r' || each == 'R';
    operations.push_back(reduces ? Reduction(at, at + 10) : Compute(at, at + 10));
    if (each == 'C') operations.back().work = WorkClass::kCopyToDevice;
    phases.push_back(each == 'f' || each == 'R' || each == 'C' ? StepPhase::kForward
                     : each == 'o'                             ? StepPhase::kOptimizer
                     : each == '.'                             ? StepPhase::kOther
                                                               : StepPhase::kBackward);
  }
  CommunicationTiming timing;
  const StepRecord record{.start_ns = 0, .end_ns = at + 20};
  timing.AddStep(operations, operations.size(), phases, record, std::nullopt);
  return timing;
}

// By a call's place in the step: f or b where it is launched amid a forward or backward pass, a ahead of a
// forward pass.
std::string AmidOf(std::string_view kernels) {
  const CommunicationTiming timing = TimingOf(kernels);
  std::string amid;
  for (const auto& [key, call] : timing.calls())
    amid += call.amid_forward_steps > 0       ? 'f'
            : call.amid_backward_steps > 0    ? 'b'
            : call.ahead_of_forward_steps > 0 ? 'a'
                                              : '-';
  return amid;
}

TEST(CommunicationTiming, CallsAmidAPassAreInsideItsLayers) {
  EXPECT_EQ(AmidOf("RfRfRfRfbbbb"), "-fff") << "the first layer's weights are gathered before forward";
  EXPECT_EQ(AmidOf("ffffRbbbb"), "-") << "a loss";
  EXPECT_EQ(AmidOf("RRRfRffffffffffbbbbo"), "----") << "updated weights, copied one by one";
  EXPECT_EQ(AmidOf("RCRfRffffffffffbbbbo"), "-aa") << "behind the input's copy they are of this step";
  EXPECT_EQ(AmidOf("ffffbbbbrRfffffbbbbo"), "aa") << "nothing is updated between micro-batches";
  EXPECT_EQ(AmidOf("ffffbbrbbro"), "b-");
  EXPECT_EQ(AmidOf("ffffbbbborRffff"), "--") << "after the optimizer";
  EXPECT_EQ(AmidOf("ffffbbRbb"), "b") << "another thread's call, which counts as forward's";
}

TEST(CommunicationTiming, CallsThatEveryMicroBatchMakesAreRepeats) {
  const CommunicationTiming timing = TimingOf("fffbrbrbfffbrbrbfffbrbrbo");
  ASSERT_EQ(timing.repeats().size(), 1);
  EXPECT_EQ(timing.repeats().at(kReduce).times, 3);
  EXPECT_EQ(timing.repeats().at(kReduce).steps, 1);
  EXPECT_EQ(TimingOf("fffbrfffbrro").repeats().at(kReduce).times, 2) << "and the gradients' norm";
  EXPECT_EQ(TimingOf("fff.rfff.r..r").repeats().at(kReduce).times, 2);
}

TEST(CommunicationTiming, OtherCallsAreNoRepeats) {
  EXPECT_TRUE(TimingOf("fffbbbfffbbbfffbrbrbo").repeats().empty()) << "the last micro-batch reduces";
  EXPECT_TRUE(TimingOf("fffbrbrbro").repeats().empty()) << "three buckets of one size";
  EXPECT_TRUE(TimingOf("ffffffbrfbrfbrfbro").repeats().empty()) << "forward is done again in backward";
  EXPECT_TRUE(TimingOf("fffbrbrbfffbrbo").repeats().empty()) << "other calls";
  EXPECT_TRUE(TimingOf("fffbrfffbrrfffbro").repeats().empty()) << "more than the first, but not the last";
  EXPECT_TRUE(TimingOf("fRfbrbfRfbrbo").repeats().empty()) << "inside layers";
}

}  // namespace
}  // namespace gpuprobe::model
