// The rule by which recording ends to hold a budget.
#include "injector/core/governor.h"

#include <gtest/gtest.h>

namespace gpuprobe::injector {
namespace {

using wire::DetailLevel;

class GovernorTest : public ::testing::Test {
 protected:
  // Windows in which the probe cost so many percent of the time.
  DetailLevel Run(uint32_t windows, uint64_t percent) {
    DetailLevel level = DetailLevel::kDetailLevelFull;
    for (uint32_t i = 0; i < windows; ++i) {
      now_ns_ += Governor::kWindowNs;
      cost_ns_ += Governor::kWindowNs * percent / 100;
      level = governor_.Judge(now_ns_, cost_ns_);
    }
    return level;
  }
  void Start(uint32_t budget, DetailLevel level = DetailLevel::kDetailLevelFull) {
    governor_.Init(budget, level);
    governor_.Judge(now_ns_, cost_ns_);
  }

  Governor governor_;
  uint64_t now_ns_ = 1'000;
  uint64_t cost_ns_ = 0;
};

TEST_F(GovernorTest, WithinTheBudgetRecordingGoesOn) {
  Start(4);
  EXPECT_EQ(Run(100, 4), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(governor_.reductions(), 0u);
  EXPECT_EQ(governor_.reduced_ns(), 0u);
}

TEST_F(GovernorTest, ABusyStartEndsNothing) {
  Start(4);
  EXPECT_EQ(Run(Governor::kPatience - 1, 50), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(Run(1, 1), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(Run(Governor::kPatience - 1, 50), DetailLevel::kDetailLevelFull);
  EXPECT_EQ(governor_.reductions(), 0u);
}

TEST_F(GovernorTest, WindowsInARowOverTheBudgetEndRecordingAndThenEverything) {
  Start(4);
  EXPECT_EQ(Run(Governor::kPatience, 5), DetailLevel::kDetailLevelCallbacks);
  EXPECT_EQ(governor_.reduced_ns(), 0u);
  EXPECT_EQ(Run(Governor::kPatience - 1, 5), DetailLevel::kDetailLevelCallbacks);
  EXPECT_EQ(Run(1, 5), DetailLevel::kDetailLevelOff);
  EXPECT_EQ(governor_.reductions(), 2u);
  EXPECT_EQ(governor_.reduced_ns(), Governor::kPatience * Governor::kWindowNs);
}

TEST_F(GovernorTest, NothingIsGivenBack) {
  Start(4, DetailLevel::kDetailLevelGraphs);
  EXPECT_EQ(Run(Governor::kPatience, 9), DetailLevel::kDetailLevelCallbacks);
  EXPECT_EQ(Run(1000, 0), DetailLevel::kDetailLevelCallbacks);
  EXPECT_EQ(governor_.reduced_ns(), 1000 * Governor::kWindowNs);
}

TEST_F(GovernorTest, WithoutABudgetRecordingGoesOn) {
  Start(0, DetailLevel::kDetailLevelGraphs);
  EXPECT_EQ(Run(10, 99), DetailLevel::kDetailLevelGraphs);
}

}  // namespace
}  // namespace gpuprobe::injector
