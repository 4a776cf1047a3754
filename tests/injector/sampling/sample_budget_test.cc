// What sampling may cost.
#include "injector/sampling/sample_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

// The most that came within any second, if samples of that cost are always wanted.
std::pair<uint64_t, size_t> MostInASecond(uint64_t cost_ns, uint64_t between_ns, unsigned of_a_look = 1) {
  SampleBudget budget;
  std::deque<uint64_t> times;
  size_t most = 0;
  for (uint64_t now = 3600 * SampleBudget::kSecondNs; now < 3610 * SampleBudget::kSecondNs;
       now += between_ns) {
    budget.PassUntil(now);
    if (budget.Allows()) {
      for (unsigned i = 0; i < of_a_look; ++i) {
        budget.TakeSample();
        times.push_back(now);
      }
      budget.TakeCpu(cost_ns * of_a_look);
    }
    while (!times.empty() && now - times.front() >= SampleBudget::kSecondNs) times.pop_front();
    most = std::max(most, times.size());
  }
  return {most * cost_ns, most};
}

TEST(SampleBudget, AtMostAHundredSamplesComeInAnySecond) {
  for (unsigned of_a_look = 1; of_a_look <= SampleBudget::kMostOfALook; ++of_a_look) {
    const auto [cost_ns, samples] = MostInASecond(10'000, kMillisecond, of_a_look);
    EXPECT_LE(samples, 100U) << of_a_look;
    EXPECT_GE(samples, 80U) << of_a_look;
  }
}

TEST(SampleBudget, AtMostOnePercentIsSpentInAnySecond) {
  for (const uint64_t cost_ns : {100'000, 200'000, 500'000, 900'000}) {
    const auto [spent_ns, samples] = MostInASecond(cost_ns, 10 * kMillisecond);
    EXPECT_LE(spent_ns, SampleBudget::kSecondNs / 100) << cost_ns;
    EXPECT_GE(spent_ns, SampleBudget::kSecondNs / 100 * 6 / 10) << cost_ns;
  }
}

TEST(SampleBudget, WhatCostTooMuchIsWaitedFor) {
  SampleBudget budget;
  uint64_t now = SampleBudget::kSecondNs;
  budget.PassUntil(now);
  budget.TakeSample();
  budget.TakeCpu(20 * kMillisecond);
  budget.PassUntil(now += 2 * SampleBudget::kSecondNs);
  EXPECT_FALSE(budget.Allows());
  const uint64_t rest_ns = budget.RestNs();
  EXPECT_GT(rest_ns, 0u);
  EXPECT_LT(rest_ns, SampleBudget::kSecondNs);
  budget.PassUntil(now += rest_ns);
  EXPECT_TRUE(budget.Allows());
  EXPECT_EQ(budget.RestNs(), 0u);
}

TEST(SampleBudget, ALookThatTookMoreSamplesThanThereWereIsWaitedForToo) {
  SampleBudget budget;
  uint64_t now = SampleBudget::kSecondNs;
  budget.PassUntil(now);
  for (int i = 0; i < SampleBudget::kMostOfALook; ++i) budget.TakeSample();
  EXPECT_FALSE(budget.Allows());
  const uint64_t rest_ns = budget.RestNs();
  EXPECT_GT(rest_ns, 20 * kMillisecond);
  budget.PassUntil(now += rest_ns);
  EXPECT_TRUE(budget.Allows());
}

TEST(SampleBudget, AClockThatStandsStillOrGoesBackGivesNothing) {
  SampleBudget budget;
  budget.PassUntil(SampleBudget::kSecondNs);
  budget.TakeCpu(2 * kMillisecond);
  budget.PassUntil(SampleBudget::kSecondNs);
  budget.PassUntil(1);
  EXPECT_FALSE(budget.Allows());
}

}  // namespace
}  // namespace gpuprobe::injector
