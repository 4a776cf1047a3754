// What a step's kernels and transfers take without the warm-up.
#include <gtest/gtest.h>

#include <vector>

#include "collector/model/steady_transfers.h"
#include "collector/model/step_work.h"

namespace gpuprobe::model {
namespace {

StepOperation Kernel(uint32_t token, uint64_t length_ns) {
  return {.start_ns = 1000, .end_ns = 1000 + length_ns, .token = token, .coarse = token};
}

TEST(StepWork, CountsStepsFromTheFirstThatIsNoWarmUp) {
  StepWork work;
  work.AddStep(std::vector{Kernel(7, 9000), Kernel(7, 9000)}, 20'000, 0);
  work.AddStep(std::vector{Kernel(7, 100), Kernel(7, 200)}, 400, 1);
  EXPECT_EQ(work.steps(), 0u) << "any of them may be warm-up";
  work.KeepFrom(1);
  work.AddStep(std::vector{Kernel(9, 50)}, 400, std::nullopt);
  EXPECT_EQ(work.steps(), 2u);
  EXPECT_EQ(work.Of(7).calls, 2u);
  EXPECT_EQ(work.Of(7).time_ns, 300u);
  EXPECT_EQ(work.Of(7).squares, 300u * 300u) << "of the steps' times, not of the calls'";
  EXPECT_EQ(work.Of(9).time_ns, 50u);
  EXPECT_EQ(work.Of(8).calls, 0u);
}

TEST(StepWork, LeavesOutWhatCommunicatesAndCopies) {
  StepWork work;
  std::vector<StepOperation> step{Kernel(1, 10), Kernel(2, 20)};
  step[1].work = WorkClass::kCommunication;
  work.AddStep(step, 30, std::nullopt);
  EXPECT_EQ(work.Of(1).calls, 1u);
  EXPECT_EQ(work.Of(2).calls, 0u);
}

TEST(SteadyTransfers, LeaveOutWhatEndsBeforeTheFirstSteadyStep) {
  SteadyTransfers transfers;
  transfers.Add({.end_ns = 100, .transfer_ns = 40, .waited_ns = 5000}, std::nullopt);
  transfers.Add({.end_ns = 300, .transfer_ns = 30, .waited_ns = 6}, std::nullopt);
  EXPECT_EQ(transfers.sums().calls, 0u);
  transfers.Add({.end_ns = 400, .transfer_ns = 50, .waited_ns = 4}, 200);
  transfers.Add({.end_ns = 150, .transfer_ns = 99, .waited_ns = 99}, 200);
  EXPECT_EQ(transfers.sums().calls, 2u);
  EXPECT_EQ(transfers.sums().transfer_ns, 80u);
  EXPECT_EQ(transfers.sums().waited_ns, 10u);
  EXPECT_EQ(transfers.sums().transfer_squares, 30u * 30u + 50u * 50u);
}

TEST(SteadyTransfers, WithoutStepsAllCount) {
  SteadyTransfers transfers;
  for (uint64_t i = 1; i <= 1000; ++i)
    transfers.Add({.end_ns = i, .transfer_ns = 1, .waited_ns = i}, std::nullopt);
  transfers.Finish(0);
  EXPECT_EQ(transfers.sums().calls, 1000u);
  EXPECT_EQ(transfers.sums().waited_ns, 1000u * 1001 / 2);
}

TEST(SteadyTransfers, OfManyEarlyCallsNoneOfTheWarmUpCountsAndFewOthersAreLost) {
  SteadyTransfers transfers;
  for (uint64_t i = 1; i <= 1000; ++i)
    transfers.Add({.end_ns = i, .transfer_ns = i <= 300 ? 1000u : 1u, .waited_ns = 0}, std::nullopt);
  transfers.Finish(300);
  EXPECT_EQ(transfers.sums().transfer_ns, transfers.sums().calls);
  EXPECT_GE(transfers.sums().calls, 700u - 2 * 1000 / SteadyTransfers::kMaxEarly);
}

}  // namespace
}  // namespace gpuprobe::model
