#include "collector/model/job/late_steps.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpuprobe::model {
namespace {

// One rank's step: 1000 ns, or 1300 when late: the late rank computes 300 ns longer while the others wait.
StepRecord Told(bool late_rank, bool late_step) {
  StepRecord r;
  r.end_ns = late_step ? 1300 : 1000;
  r.exposed_comm_ns = late_step && !late_rank ? 400 : 100;
  r.compute_ns = r.end_ns - r.exposed_comm_ns;
  return r;
}

TEST(LateSteps, WhoIsLateInWhichStepsAndWhatItDoesLonger) {
  LateSteps steps;
  for (uint64_t step = 0; step < 1000; ++step) {
    for (uint32_t rank = 0; rank < 5; ++rank) steps.Add(step, rank, Told(rank == 3, step >= 700));
  }
  const auto ranks = steps.Summarize().ranks;
  ASSERT_EQ(ranks.size(), 5u);
  for (uint32_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(ranks[rank].steps, 1000u);
    EXPECT_EQ(ranks[rank].levels[0].late, rank == 3 ? 300u : 0u);
  }
  EXPECT_EQ(ranks[3].levels[0].late_by_ns, 300u * 300);
  EXPECT_EQ(ranks[3].levels[0].compute_ns, 300 * 300);
  EXPECT_EQ(ranks[3].levels[0].late_total_ns, 300u * 1300);
  EXPECT_EQ(ranks[3].levels[0].other_steps_ns.Summarize().max, 1000u);
  const StepHistory::Stretch stretch = ranks[3].levels[0].history.Densest();
  EXPECT_EQ(stretch.first, 700u);
  EXPECT_EQ(stretch.last, 999u);
  EXPECT_EQ(stretch.count, 300u);
}

TEST(LateSteps, OfTwoRanksEitherMayBeLate) {
  LateSteps steps;
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t rank = 0; rank < 2; ++rank) steps.Add(step, rank, Told(rank == step % 2, true));
  }
  const auto ranks = steps.Summarize().ranks;
  EXPECT_EQ(ranks[0].levels[0].late, 5u);
  EXPECT_EQ(ranks[1].levels[0].late, 5u);
}

TEST(LateSteps, StepsThatMostRanksDidNotTellOfAreNotCompared) {
  LateSteps steps;
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t rank = 0; rank < (step < 4 ? 2u : 8u); ++rank) steps.Add(step, rank, Told(rank == 0, true));
  }
  const auto ranks = steps.Summarize().ranks;
  EXPECT_EQ(ranks[0].steps, 6u);
  EXPECT_EQ(ranks[7].steps, 6u);
}

TEST(LateSteps, OfTwoRanksADelayThatEachHasInAnotherStepCountsOnce) {
  LateSteps steps;
  for (uint64_t step = 0; step < 20; ++step) {
    steps.Add(step, 0, Told(true, step == 9));
    steps.Add(step, 1, Told(false, step == 10));
  }
  const Distribution lengths = steps.Summarize().long_steps.lengths_ns();
  EXPECT_EQ(lengths.total(), 20u * 1000 + 300);
  EXPECT_EQ(lengths.Summarize().max, 1150u);
}

TEST(LateSteps, TheLongestAreKeptWithWhoWasLate) {
  LateSteps steps;
  for (uint64_t step = 0; step < 1000; ++step) {
    for (uint32_t rank = 0; rank < 5; ++rank)
      steps.Add(step, rank, Told(rank == 3, step == 17 || step == 800));
  }
  const LongSteps long_steps = steps.Summarize().long_steps;
  EXPECT_EQ(long_steps.lengths_ns().count(), 1000u);
  EXPECT_NEAR(long_steps.lengths_ns().Summarize().p50, 1000, 4);
  ASSERT_EQ(long_steps.longest().size(), LongSteps::kKept);
  for (const size_t i : {0u, 1u}) {
    const LongSteps::Step& step = long_steps.longest()[i];
    EXPECT_EQ(step.step, i == 0 ? 17u : 800u);
    EXPECT_EQ(step.total_ns, 1300u);
    EXPECT_TRUE(step.late);
    EXPECT_EQ(step.member, 3u);
    EXPECT_EQ(step.late_by_ns, 300u);
  }
  EXPECT_FALSE(long_steps.longest()[2].late);
}

TEST(StepHistory, TheStretchIsFoundAmongSingleSteps) {
  StepHistory history;
  history.Add(3);
  for (uint64_t step = 20; step < 30; ++step) history.Add(step);
  history.Add(55);
  const StepHistory::Stretch stretch = history.Densest();
  EXPECT_EQ(stretch.first, 20u);
  EXPECT_EQ(stretch.last, 29u);
  EXPECT_EQ(stretch.count, 10u);
}

TEST(StepHistory, StaysBoundedInALongRun) {
  StepHistory history;
  for (uint64_t step = 0; step < 1'000'000; ++step) {
    if (step % 100 == 7 || (step >= 600'000 && step < 700'000)) history.Add(step);
  }
  const StepHistory::Stretch stretch = history.Densest();
  constexpr uint64_t kSpan = (uint64_t{1} << 20) / StepHistory::kMaxSpans;
  EXPECT_NEAR(static_cast<double>(stretch.first), 600'000, kSpan);
  EXPECT_NEAR(static_cast<double>(stretch.last), 700'000, kSpan);
  EXPECT_EQ(StepHistory().Densest().count, 0u);
}

}  // namespace
}  // namespace gpuprobe::model
