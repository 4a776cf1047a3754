// What a step's kernels and transfers take without the warm-up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "collector/model/calls/steady_transfers.h"
#include "collector/model/steps/step_work.h"

namespace gpuprobe::model {
namespace {

StepOperation Kernel(uint32_t token, uint64_t length_ns) {
  return {.start_ns = 1000, .end_ns = 1000 + length_ns, .token = token, .coarse = token};
}

TEST(StepWork, CountsStepsFromTheFirstThatIsNoWarmUp) {
  StepWork work;
  work.AddStep(std::vector{Kernel(7, 9000), Kernel(7, 9000)}, 20'000, 0, true);
  work.AddStep(std::vector{Kernel(7, 100), Kernel(7, 200)}, 400, 1, true);
  EXPECT_EQ(work.steps(), 0u) << "any of them may be warm-up";
  work.KeepFrom(1);
  work.AddStep(std::vector{Kernel(9, 50)}, 400, 2, false);
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
  work.AddStep(step, 30, 0, false);
  EXPECT_EQ(work.Of(1).calls, 1u);
  EXPECT_EQ(work.Of(2).calls, 0u);
}

// A step of 1000 ns and then steps of 100 ns, as far as `until_ns`.
SteadyRuns OneStepOfWarmUp(uint64_t until_ns) {
  SteadyRuns runs;
  if (until_ns >= 1000) runs.Add(0, 1000, 1000);
  for (uint64_t start = 1000; start + 100 <= until_ns; start += 100) runs.Add(start, start + 100, 100);
  return runs;
}

TEST(SteadyTransfers, LeaveOutWhatEndsBeforeTheFirstSteadyStep) {
  SteadyTransfers transfers;
  SteadyRuns runs = OneStepOfWarmUp(1500);
  transfers.Add({.end_ns = 100, .transfer_ns = 40, .waited_ns = 5000}, runs);
  transfers.Add({.end_ns = 1300, .transfer_ns = 30, .waited_ns = 6}, runs);
  EXPECT_EQ(transfers.sums().calls, 0u);
  runs.KeepFrom(1000);
  transfers.Add({.end_ns = 1400, .transfer_ns = 50, .waited_ns = 4}, runs);
  transfers.Add({.end_ns = 150, .transfer_ns = 99, .waited_ns = 99}, runs);
  EXPECT_EQ(transfers.sums().calls, 2u);
  EXPECT_EQ(transfers.sums().transfer_ns, 80u);
  EXPECT_EQ(transfers.sums().waited_ns, 10u);
  EXPECT_EQ(transfers.sums().transfer_squares, 30u * 30u + 50u * 50u);
}

TEST(SteadyTransfers, WithoutStepsAllCount) {
  SteadyTransfers transfers;
  const SteadyRuns none;
  for (uint64_t i = 1; i <= 5000; ++i) transfers.Add({.end_ns = i, .transfer_ns = 1, .waited_ns = i}, none);
  transfers.Finish(none);
  EXPECT_EQ(transfers.sums().calls, 5000u);
  EXPECT_EQ(transfers.sums().waited_ns, 5000u * 5001 / 2);
}

TEST(SteadyTransfers, AreTheSameInWhateverOrderAndHoweverLateTheyAreHeard) {
  // 40 calls a step, of which each has a time of its own.
  std::vector<SteadyTransfers::Call> calls;
  for (uint64_t end = 25; end <= 1000; end += 25) calls.push_back({end, 100'000 + end, 7});
  for (uint64_t end = 1002; end <= 13'000; end += 5) calls.push_back({end, end, end % 11});
  const uint64_t last_ns = 13'000;
  SteadyTransfers::Sums expected;
  for (const auto& call : calls) {
    if (call.end_ns <= 1000) continue;
    ++expected.calls;
    expected.transfer_ns += call.transfer_ns;
    expected.waited_ns += call.waited_ns;
  }
  std::mt19937 random(7);
  for (int run = 0; run < 50; ++run) {
    // Steps are known up to 1000 ns behind or ahead of the calls, which are out of order by as much.
    std::vector<std::pair<uint64_t, SteadyTransfers::Call>> heard;
    for (const auto& call : calls) heard.emplace_back(call.end_ns + random() % 1000, call);
    std::sort(heard.begin(), heard.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const uint64_t known_at_ns = 2000 + random() % 11'000;
    SteadyTransfers transfers;
    for (const auto& [now_ns, call] : heard) {
      SteadyRuns runs = OneStepOfWarmUp(now_ns - std::min<uint64_t>(now_ns, random() % 1000));
      if (now_ns >= known_at_ns) runs.KeepFrom(1000);
      transfers.Add(call, runs);
    }
    SteadyRuns runs = OneStepOfWarmUp(last_ns);
    runs.KeepFrom(1000);
    transfers.Finish(runs);
    EXPECT_EQ(transfers.sums().calls, expected.calls);
    EXPECT_EQ(transfers.sums().transfer_ns, expected.transfer_ns);
    EXPECT_EQ(transfers.sums().waited_ns, expected.waited_ns);
  }
}

TEST(SteadyRuns, WhatIsWarmUpNeverSharesARunWithWhatIsNot) {
  SteadyRuns runs;
  runs.Add(100, 1100, 1000);
  runs.Add(1100, 2000, 900);
  runs.Add(2000, 2100, 100);
  runs.Add(2100, 2190, 90);
  EXPECT_EQ(runs.RunAt(100), 0u);
  EXPECT_EQ(runs.RunAt(101), 1u);
  EXPECT_EQ(runs.RunAt(2000), 1u);
  EXPECT_EQ(runs.RunAt(2001), 2u);
  EXPECT_EQ(runs.until_ns(), 2190u);
  EXPECT_FALSE(runs.from_ns().has_value());
  runs.KeepFrom(2000);
  EXPECT_EQ(runs.from_ns(), 2000u);
  EXPECT_FALSE(runs.IsSteady(0));
  EXPECT_FALSE(runs.IsSteady(1));
  EXPECT_TRUE(runs.IsSteady(2));
}

}  // namespace
}  // namespace gpuprobe::model
