// The rule by which detail is shed and given back.
#include "injector/core/governor.h"

#include <gtest/gtest.h>

namespace gpuprobe::injector {
namespace {

using wire::DetailLevel;

class GovernorTest : public ::testing::Test {
 protected:
  // Windows in which the probe cost so many percent of the time.
  DetailLevel Run(uint32_t windows, uint64_t percent) {
    for (uint32_t i = 0; i < windows; ++i) {
      now_ns_ += Governor::kWindowNs;
      cost_ns_ += Governor::kWindowNs * percent / 100;
      governor_.Judge(now_ns_, cost_ns_);
    }
    return governor_.level();
  }
  void Start(uint32_t budget, DetailLevel least = DetailLevel::kDetailLevelFull) {
    governor_.Init(budget, least);
    governor_.Judge(now_ns_, cost_ns_);
  }

  Governor governor_;
  uint64_t now_ns_ = 1'000;
  uint64_t cost_ns_ = 0;
};

TEST_F(GovernorTest, WithinTheBudgetNothingIsShed) {
  Start(4);
  EXPECT_EQ(Run(100, 4), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(governor_.reductions(), 0u);
  EXPECT_EQ(governor_.reduced_ns(), 0u);
}

TEST_F(GovernorTest, EachWindowOverTheBudgetShedsOneLevelUntilNothingIsLeft) {
  Start(4);
  EXPECT_EQ(Run(1, 5), DetailLevel::kDetailLevelWindows);
  EXPECT_EQ(Run(1, 5), DetailLevel::kDetailLevelCallbacks);
  EXPECT_EQ(Run(1, 5), DetailLevel::kDetailLevelOff);
  EXPECT_EQ(Run(100, 0), DetailLevel::kDetailLevelOff);
  EXPECT_EQ(governor_.reductions(), 3u);
}

TEST_F(GovernorTest, CalmGivesDetailBackAndRelapsesMakeItWaitLonger) {
  Start(4);
  Run(1, 9);
  EXPECT_EQ(Run(Governor::kCalmWindows - 1, 0), DetailLevel::kDetailLevelWindows);
  EXPECT_EQ(Run(1, 0), DetailLevel::kDetailLevelFull);
  Run(1, 9);
  EXPECT_EQ(Run(2 * Governor::kCalmWindows - 1, 0), DetailLevel::kDetailLevelWindows);
  EXPECT_EQ(Run(1, 0), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(governor_.reduced_ns(), 3u * Governor::kCalmWindows * Governor::kWindowNs);
}

TEST_F(GovernorTest, NearTheBudgetTheLevelStays) {
  Start(4);
  Run(1, 9);
  EXPECT_EQ(Run(200, 2), DetailLevel::kDetailLevelWindows);
}

TEST_F(GovernorTest, WhatWasAskedForIsNotGivenBack) {
  Start(4, DetailLevel::kDetailLevelGraphs);
  EXPECT_EQ(Run(100, 0), DetailLevel::kDetailLevelGraphs);
  EXPECT_EQ(governor_.reductions(), 0u);
  EXPECT_EQ(Run(1, 9), DetailLevel::kDetailLevelWindows);
  EXPECT_EQ(Run(Governor::kCalmWindows, 0), DetailLevel::kDetailLevelGraphs);
}

TEST_F(GovernorTest, WithoutABudgetNothingIsShed) {
  Start(0);
  EXPECT_EQ(Run(10, 99), DetailLevel::kDetailLevelFull);
}

}  // namespace
}  // namespace gpuprobe::injector
