#include "collector/model/job/step_spread.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpuprobe::model {
namespace {

TEST(StepSpreadTest, TheRankThatWaitsLeastChangesFromStepToStep) {
  StepSpread spread;
  // Two ranks that take turns with being late: each exposes 300 ns on average, but 100 ns nobody escapes.
  for (uint64_t step = 0; step < 1000; ++step) {
    spread.Add(step, 800, step % 2 == 0 ? 100 : 500);
    spread.Add(step, 700, step % 2 == 0 ? 500 : 100);
  }
  const StepSpread::Means means = spread.Summarize();
  EXPECT_EQ(means.steps, 1000u);
  EXPECT_DOUBLE_EQ(means.exposed_ns, 300);
  EXPECT_DOUBLE_EQ(means.least_exposed_ns, 100);
  EXPECT_DOUBLE_EQ(means.least_comm_ns, 700);
}

TEST(StepSpreadTest, RanksThatTellLateAreWaitedForWithinBounds) {
  StepSpread spread;
  for (uint64_t step = 0; step < 100; ++step) spread.Add(step, 10, 10);
  EXPECT_EQ(spread.Summarize().steps, 0u) << "one rank waits for nobody";
  for (uint64_t step = 0; step < 100; ++step) spread.Add(step, 10, 4);
  EXPECT_EQ(spread.Summarize().steps, 100u);
  EXPECT_DOUBLE_EQ(spread.Summarize().least_exposed_ns, 4);
}

TEST(StepSpreadTest, StepsOfWhichRanksAreMissingDoNotCount) {
  StepSpread spread;
  for (uint64_t step = 0; step < 600; ++step) {
    for (uint64_t rank = 0; rank < 4; ++rank) {
      if (step % 3 == 0 && rank == 0) continue;  // its records were lost: it was the one that waited least
      spread.Add(step, 100, 10 * rank);
    }
  }
  EXPECT_EQ(spread.Summarize().steps, 400u);
  EXPECT_DOUBLE_EQ(spread.Summarize().least_exposed_ns, 0);
}

TEST(StepSpreadTest, WhatIsClosedStaysClosed) {
  StepSpread spread;
  for (uint64_t step = 0; step < 2 * StepSpread::kMaxOpen; ++step) {
    spread.Add(step, 100, 10);
    spread.Add(step, 100, 20);
  }
  spread.Add(0, 1, 1);
  spread.Add(0, 1, 1);
  EXPECT_EQ(spread.Summarize().steps, 2 * StepSpread::kMaxOpen);
  EXPECT_DOUBLE_EQ(spread.Summarize().least_exposed_ns, 10);
}

}  // namespace
}  // namespace gpuprobe::model
