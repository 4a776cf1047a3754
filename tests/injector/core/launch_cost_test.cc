// The comparison of launches with and without recording: when it is wanted, and its results.
#include "injector/core/launch_cost.h"

#include <gtest/gtest.h>

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

class LaunchCostTest : public ::testing::Test {
 protected:
  // Launches one after the other for `for_ns`, each `gap_ns` after the one before.
  void Launch(uint64_t for_ns, uint64_t gap_ns, uint64_t duration_ns) {
    for (const uint64_t end = now_ns_ + for_ns; now_ns_ + gap_ns < end; now_ns_ += gap_ns)
      cost_.Took(now_ns_ + gap_ns, duration_ns, gap_ns, 1);
  }
  // Makes turns that each launch at their own pace; Compare comes first, as on the probe's thread.
  void Turns(uint64_t recorded_ns, uint64_t unrecorded_ns, uint64_t odd_turn_ns = 0) {
    LaunchCost::Turn turns[2 * LaunchCost::kTurns];
    uint64_t at_ns = now_ns_;
    for (int i = 0; i < 2 * LaunchCost::kTurns; ++i) {
      turns[i] = {at_ns, at_ns + LaunchCost::kTurnNs, i % 2 == 0, true};
      at_ns += LaunchCost::kTurnNs;
    }
    cost_.Compare(turns, 2 * LaunchCost::kTurns, 0);
    for (int i = 0; i < 2 * LaunchCost::kTurns; ++i) {
      now_ns_ = turns[i].begin_ns;
      const uint64_t pace_ns = i % 2 == 0 ? recorded_ns : unrecorded_ns;
      Launch(LaunchCost::kTurnNs, i == 2 && odd_turn_ns != 0 ? odd_turn_ns : pace_ns, 500);
    }
  }

  LaunchCost cost_;
  uint64_t now_ns_ = 5 * kSecondNs;
};

TEST_F(LaunchCostTest, ALoopOfLaunchesIsWorthComparingOnce) {
  EXPECT_FALSE(cost_.WantsComparison(now_ns_));
  Launch(kSecondNs, 5'000, 400);  // 8 % of the time
  EXPECT_TRUE(cost_.WantsComparison(now_ns_ + 5'000));
  Turns(3'000, 2'000);
  Launch(kSecondNs, 5'000, 400);
  EXPECT_FALSE(cost_.WantsComparison(now_ns_ + kSecondNs));
}

TEST_F(LaunchCostTest, FewLaunchesAreNot) {
  EXPECT_FALSE(cost_.WantsComparison(now_ns_));
  Launch(kSecondNs, 10'000, 400);  // 4 %
  EXPECT_FALSE(cost_.WantsComparison(now_ns_ + 10'000));
}

TEST_F(LaunchCostTest, ALaunchThatWaitsForTheDeviceCountsForLittle) {
  Launch(kSecondNs, 1'000'000, 900'000);
  EXPECT_EQ(cost_.launches(), 999u);
  EXPECT_EQ(cost_.launch_ns(), 999 * LaunchCost::kMaxLaunchNs);
}

TEST_F(LaunchCostTest, OneOfSixteenStandsForSixteen) {
  cost_.Took(now_ns_, 400, 0, LaunchCost::kSampling);
  EXPECT_EQ(cost_.launches(), LaunchCost::kSampling);
  EXPECT_EQ(cost_.launch_ns(), 400u * LaunchCost::kSampling);
}

TEST_F(LaunchCostTest, TheDifferenceIsThatOfTheTurns) {
  Launch(kSecondNs, 5'000, 400);
  const uint64_t before = cost_.launches();
  Turns(3'000, 2'000);
  LaunchCost::Pace pace{};
  ASSERT_TRUE(cost_.Compared(&pace));
  EXPECT_EQ(pace.recorded_ns, 3'000u);
  EXPECT_EQ(pace.unrecorded_ns, 2'000u);
  EXPECT_EQ(pace.error_ns, 0u);
  EXPECT_EQ(cost_.unrecorded_launches(), LaunchCost::kTurns * (LaunchCost::kTurnNs / 2'000 - 1));
  EXPECT_EQ(cost_.cupti_ns(), 1'000 * (cost_.recorded_launches() - before))
      << "a budget is not held against the past";
}

TEST_F(LaunchCostTest, ATurnInWhichSomethingElseRanDecidesNothing) {
  Turns(3'000, 2'000, 40'000);
  LaunchCost::Pace pace{};
  ASSERT_TRUE(cost_.Compared(&pace));
  EXPECT_EQ(pace.recorded_ns, 3'000u);
}

TEST_F(LaunchCostTest, TooFewLaunchesSayNothing) {
  Turns(300'000, 200'000);
  LaunchCost::Pace pace{};
  EXPECT_FALSE(cost_.Compared(&pace));
  EXPECT_EQ(cost_.cupti_ns(), 0u);
}

TEST_F(LaunchCostTest, AProgramThatWaitsForItsDeviceAnywayPaysNothing) {
  Turns(8'000, 8'000);
  LaunchCost::Pace pace{};
  ASSERT_TRUE(cost_.Compared(&pace));
  EXPECT_EQ(cost_.cupti_ns(), 0u);
}

TEST_F(LaunchCostTest, ATurnThatWasEndedEarlyIsNotCompared) {
  LaunchCost::Turn turns[2] = {
      {now_ns_, now_ns_ + LaunchCost::kTurnNs, true, true},
      {now_ns_ + LaunchCost::kTurnNs, now_ns_ + 2 * LaunchCost::kTurnNs, false, false}};
  cost_.Compare(turns, 2, 0);
  Launch(2 * LaunchCost::kTurnNs, 2'000, 500);
  LaunchCost::Pace pace{};
  EXPECT_FALSE(cost_.Compared(&pace));
  EXPECT_GT(cost_.unrecorded_launches(), 0u) << "which have no record all the same";
}

TEST(PickLaunch, OneOfSixteenWhateverTheProgramRepeats) {
  for (const uint32_t stride : {1u, 2u, 16u, 48u, 1024u}) {
    int picked = 0;
    for (uint32_t i = 0; i < 16'000; ++i) picked += PickLaunch(i * stride + 7) != 0 ? 1 : 0;
    EXPECT_NEAR(picked, 1000, 250) << stride;
  }
}

}  // namespace
}  // namespace gpuprobe::injector
