#include "collector/model/steps/lost_operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gpuprobe::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kPerStep = 10;
constexpr uint64_t kKernelNs = 1'000;
constexpr uint64_t kStepNs = kPerStep * kKernelNs;
constexpr uint64_t kFirstNs = 1'000'000;
constexpr uint32_t kHead = 1;

// Steps of ten kernels back to back, launched 10 us ahead; `late_ns` before the kernels of one step.
std::vector<StepOperation> Steps(size_t steps, size_t late_step = SIZE_MAX, uint64_t late_ns = 0) {
  std::vector<StepOperation> operations;
  uint64_t at_ns = kFirstNs;
  for (size_t s = 0; s < steps; ++s) {
    if (s == late_step) at_ns += late_ns;
    for (uint32_t i = 0; i < kPerStep; ++i) {
      operations.push_back({.start_ns = at_ns,
                            .end_ns = at_ns + kKernelNs,
                            .launch_ns = at_ns - 10'000 - (i == 0 ? 0 : 400),
                            .token = kHead + i,
                            .coarse = kHead + i,
                            .launched = true});
      at_ns += kKernelNs;
    }
  }
  return operations;
}

void Lose(std::vector<StepOperation>& operations, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    StepOperation& o = operations[i];
    o = {.start_ns = o.launch_ns,
         .end_ns = o.launch_ns,
         .launch_ns = o.launch_ns,
         .work = WorkClass::kUnseen,
         .launched = true};
  }
}

std::vector<RestoredStep> Whole(const std::vector<StepOperation>& operations) {
  std::vector<RestoredStep> steps;
  for (size_t begin = 0; begin < operations.size(); begin += kPerStep) {
    const auto lost = std::count_if(operations.begin() + static_cast<ptrdiff_t>(begin),
                                    operations.begin() + static_cast<ptrdiff_t>(begin + kPerStep),
                                    [](const StepOperation& o) { return o.work == WorkClass::kUnseen; });
    steps.push_back({.begin = begin, .end = begin + kPerStep, .left = static_cast<uint32_t>(lost)});
  }
  return steps;
}

UsualStep Usual() {
  const std::vector<StepOperation> one = Steps(1);
  UsualStep usual;
  usual.Learn(one, kFirstNs, kFirstNs + kStepNs);
  return usual;
}

TEST(LostOperations, StandWhereTheUsualStepHasThem) {
  const std::vector<StepOperation> truth = Steps(6);
  std::vector<StepOperation> seen = truth;
  Lose(seen, 15, 42);
  std::vector<RestoredStep> steps = Whole(seen);
  Usual().Restore(seen, steps, 0, 0, false);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_EQ(seen[i].start_ns, truth[i].start_ns) << i;
    EXPECT_EQ(seen[i].end_ns, truth[i].end_ns) << i;
    EXPECT_EQ(seen[i].token, truth[i].token) << i;
    EXPECT_EQ(seen[i].work, truth[i].work) << i;
  }
  for (const RestoredStep& step : steps) {
    EXPECT_EQ(step.left, 0);
    EXPECT_EQ(step.end_error_ns, 0);
  }
}

TEST(LostOperations, TheErrorHoldsWhatTheGapHides) {
  const std::vector<StepOperation> truth = Steps(6, 2, 3'000);
  std::vector<StepOperation> seen = truth;
  Lose(seen, 15, 42);
  std::vector<RestoredStep> steps = Whole(seen);
  Usual().Restore(seen, steps, 0, 0, false);
  for (size_t s = 1; s < 4; ++s) {
    const uint64_t is = seen[steps[s].end - 1].end_ns;
    const uint64_t was = truth[steps[s].end - 1].end_ns;
    EXPECT_GE(steps[s].end_error_ns, std::max(is, was) - std::min(is, was)) << s;
    EXPECT_LE(steps[s].end_error_ns, 3'000) << s;
  }
  EXPECT_EQ(seen[45].start_ns, truth[45].start_ns);
}

TEST(LostOperations, WaitForWhatComesAfterTheGap) {
  std::vector<StepOperation> seen = Steps(3);
  Lose(seen, 15, 30);
  std::vector<RestoredStep> steps = Whole(seen);
  Usual().Restore(seen, steps, 0, 0.01, false);
  EXPECT_EQ(steps[1].left, 5);
  EXPECT_EQ(steps[2].left, 10);
  Usual().Restore(seen, steps, 0, 0.01, true);
  EXPECT_EQ(steps[2].left, 0);
  EXPECT_EQ(seen.back().end_ns, kFirstNs + 3 * kStepNs);
  EXPECT_GT(steps[2].end_error_ns, 0);
}

TEST(LostOperations, AnotherKindOfStepIsNotRestored) {
  std::vector<StepOperation> seen = Steps(3);
  for (size_t i = 10; i < 20; ++i) seen[i].coarse = seen[i].token = 99;
  Lose(seen, 18, 20);
  std::vector<RestoredStep> steps = Whole(seen);
  Usual().Restore(seen, steps, 0, 0, false);
  EXPECT_FALSE(steps[1].fits);
  EXPECT_EQ(steps[1].end_error_ns, UINT64_MAX);
  EXPECT_EQ(seen[19].work, WorkClass::kUnseen);
}

TEST(LostOperations, AUsualStepIsPutTogetherFromParts) {
  const std::vector<StepOperation> truth = Steps(3);
  UsualStep usual;
  for (size_t s = 0; s < 2; ++s) {
    std::vector<StepOperation> seen = truth;
    Lose(seen, s * (kPerStep + 4), s * (kPerStep + 4) + 4);
    EXPECT_FALSE(usual.known());
    usual.LearnPart(std::span<const StepOperation>(seen).subspan(s * kPerStep, kPerStep),
                    kFirstNs + s * kStepNs, kFirstNs + (s + 1) * kStepNs);
  }
  ASSERT_TRUE(usual.known());
  std::vector<StepOperation> seen = truth;
  Lose(seen, 8, 25);
  std::vector<RestoredStep> steps = Whole(seen);
  usual.Restore(seen, steps, 0, 0, false);
  for (size_t i = 0; i < truth.size(); ++i) {
    EXPECT_EQ(seen[i].start_ns, truth[i].start_ns) << i;
    EXPECT_EQ(seen[i].token, truth[i].token) << i;
  }
}

TEST(LostOperations, AStepMayBeginAFewOperationsLater) {
  const std::vector<StepOperation> truth = Steps(4);
  std::vector<StepOperation> seen = truth;
  // A copy more before the gap; where the step after it ends was lost with it.
  seen.insert(seen.begin() + 12, seen[12]);
  seen[12].coarse = seen[12].token = 77;
  Lose(seen, 18, 25);
  std::vector<RestoredStep> steps{{.begin = 0, .end = 10, .left = 0},
                                  {.begin = 10, .end = 20, .left = 2},
                                  {.begin = 20, .end = 30, .left = 5},
                                  {.begin = 30, .end = 41, .left = 0}};
  Usual().Restore(seen, steps, 0, 0, false);
  EXPECT_TRUE(steps[1].fits);
  EXPECT_TRUE(steps[2].fits);
  EXPECT_NEAR(static_cast<double>(seen[22].start_ns), static_cast<double>(truth[21].start_ns), kKernelNs);
  // The step that ends an operation early may be off by it.
  EXPECT_GE(steps[1].end_error_ns, kKernelNs);
}

TEST(LostOperations, BeforeAnythingWasSeenTimeGoesOn) {
  std::vector<StepOperation> seen = Steps(4);
  const std::vector<StepOperation> truth = seen;
  Lose(seen, 0, 32);
  std::vector<RestoredStep> steps = Whole(seen);
  Usual().Restore(seen, steps, 0, 0.01, false);
  EXPECT_EQ(seen[15].start_ns, truth[15].start_ns);
  EXPECT_GT(steps[0].end_error_ns, 0);
}

TEST(LostOperations, StepsEndWhereTheHostPaused) {
  std::vector<StepOperation> seen = Steps(4);
  // The second one has a copy more.
  seen.insert(seen.begin() + 20, seen[19]);
  Lose(seen, 0, seen.size());
  EXPECT_THAT(EndsOfLostSteps(seen, kPerStep, kHead, false), ElementsAre(10, 21, 31, 41));
}

TEST(LostOperations, WhatIsNoMultipleOfAStepIsNotDivided) {
  std::vector<StepOperation> seen = Steps(4);
  Lose(seen, 0, seen.size());
  EXPECT_THAT(EndsOfLostSteps(std::span<const StepOperation>(seen).subspan(0, 15), kPerStep, kHead, false),
              IsEmpty());
}

}  // namespace
}  // namespace gpuprobe::model
