// Columns of steps: sums stay the same however often columns are joined, and memory is bounded.
#include "collector/model/steps/work_columns.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gpuprobe::model {
namespace {

StepOperation LaunchOf(uint32_t token, uint64_t length_ns) {
  return {.start_ns = 1000, .end_ns = 1000 + length_ns, .token = token, .coarse = token};
}

WorkColumns::Cell SumOf(const WorkColumns& columns, uint32_t token) {
  WorkColumns::Cell sum;
  for (const WorkColumns::Cell& cell : columns.Of(token)) {
    sum.calls += cell.calls;
    sum.time_ns += cell.time_ns;
  }
  return sum;
}

TEST(WorkColumns, EachStepHasAColumnWhileThereIsRoom) {
  WorkColumns columns;
  const std::vector<StepPhase> phases{StepPhase::kForward, StepPhase::kBackward};
  columns.AddStep(std::vector{LaunchOf(7, 100), LaunchOf(7, 300)}, phases, 10);
  columns.AddStep(std::vector{LaunchOf(7, 50), LaunchOf(9, 20)}, phases, 12);
  EXPECT_EQ(columns.first(), 10u);
  EXPECT_EQ(columns.steps(), (std::vector<uint32_t>{1, 0, 1}));
  ASSERT_EQ(columns.Of(7).size(), 3u);
  EXPECT_EQ(columns.Of(7)[0].calls, 2u);
  EXPECT_EQ(columns.Of(7)[0].time_ns, 400u);
  EXPECT_EQ(columns.Of(7)[1].calls, 0u);
  EXPECT_EQ(columns.Of(7)[2].time_ns, 50u);
  EXPECT_EQ(columns.Of(9)[2].calls, 1u);
  EXPECT_TRUE(columns.Of(8).empty());
  ASSERT_NE(columns.PhasesOf(7), nullptr);
  EXPECT_EQ((*columns.PhasesOf(7))[static_cast<size_t>(StepPhase::kForward)].time_ns, 150u);
  EXPECT_EQ((*columns.PhasesOf(7))[static_cast<size_t>(StepPhase::kBackward)].time_ns, 300u);
  EXPECT_EQ(columns.PhasesOf(8), nullptr);
}

TEST(WorkColumns, CollectivesHaveTheirFineTokenAndCopiesAreLeftOut) {
  WorkColumns columns;
  std::vector<StepOperation> step{LaunchOf(1, 10), LaunchOf(2, 20)};
  step[0].work = WorkClass::kCommunication;
  step[0].coarse = 5;
  step[1].work = WorkClass::kCopyToDevice;
  columns.AddStep(step, {}, 0);
  EXPECT_EQ(SumOf(columns, 1).time_ns, 10u);
  EXPECT_TRUE(columns.Of(5).empty());
  EXPECT_TRUE(columns.Of(2).empty());
}

TEST(WorkColumns, ColumnsAreJoinedSoThatCellsAreBounded) {
  constexpr uint32_t kKernels = 300;
  constexpr uint64_t kSteps = 5000;
  WorkColumns columns;
  for (uint64_t step = 0; step < kSteps; ++step) {
    std::vector<StepOperation> own;
    for (uint32_t token = 1; token <= kKernels; ++token) {
      if (token <= 3 || step >= kSteps / 2) own.push_back(LaunchOf(token, token + step % 2));
    }
    columns.AddStep(own, {}, 100 + step);
  }
  EXPECT_LE(columns.steps().size() * kKernels, WorkColumns::kMostCells);
  EXPECT_EQ(SumOf(columns, 2).calls, kSteps);
  EXPECT_EQ(SumOf(columns, 2).time_ns, 2 * kSteps + kSteps / 2);
  EXPECT_EQ(SumOf(columns, kKernels).calls, kSteps / 2);
  uint64_t steps = 0;
  for (const uint32_t in_column : columns.steps()) steps += in_column;
  EXPECT_EQ(steps, kSteps);
  for (size_t i = 0; i + 1 < columns.steps().size(); ++i)
    EXPECT_EQ(columns.steps()[i], uint32_t{1} << columns.shift());
}

}  // namespace
}  // namespace gpuprobe::model
