#include "collector/analysis/stragglers/lateness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace gpuprobe::analysis {
namespace {

using model::LateSteps;
using model::StepRecord;

constexpr uint64_t kShortStepNs = 10'000;

// One step of all ranks, of which one may be late by so much; the step is `longer_ns` longer for it. Hosts
// begin to launch it `ahead_ns` before their devices do, the late one's at the same time.
void AddStep(LateSteps& steps, uint64_t step, uint32_t ranks, int late, uint64_t late_by_ns,
             uint64_t longer_ns, uint64_t host_idle_ns = 0, uint64_t blocked_ns = 0, uint64_t ahead_ns = 0) {
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    StepRecord r;
    r.start_ns = kShortStepNs * 10;
    r.first_launch_ns = r.start_ns - (late >= 0 && static_cast<uint32_t>(late) != rank ? ahead_ns : 0);
    r.end_ns = r.start_ns + kShortStepNs + (late >= 0 ? longer_ns : 0);
    r.exposed_comm_ns = late >= 0 && static_cast<uint32_t>(late) != rank ? 500 + late_by_ns : 500;
    r.input_ns = host_idle_ns;
    r.blocked_ns = blocked_ns;
    steps.Add(step, rank, r);
  }
}

TEST(Lateness, AFewStepsInARowAreEnoughWhereNobodyElseIsLate) {
  LateSteps steps;
  for (uint64_t step = 0; step < 29; ++step)
    AddStep(steps, step, 8, step >= 9 && step < 13 ? 4 : -1, 6000, 6000);
  const std::vector<Lateness> ranks = LatenessOf(steps.Summarize().ranks);
  EXPECT_FALSE(ranks[4].by_chance);
  EXPECT_EQ(ranks[4].late, 4u);
  EXPECT_DOUBLE_EQ(ranks[4].longer_by_ns, 6000);
  ASSERT_TRUE(ranks[4].stretch.has_value());
  EXPECT_EQ(*ranks[4].stretch, std::pair(uint64_t{9}, uint64_t{12}));
  EXPECT_TRUE(ranks[5].by_chance);
}

TEST(Lateness, ARankThatBecomesLateIsSoSinceThen) {
  const auto since = [](auto is_late) {
    LateSteps steps;
    for (uint64_t step = 10; step < 50; ++step) AddStep(steps, step, 8, is_late(step) ? 4 : -1, 6000, 6000);
    return LatenessOf(steps.Summarize().ranks)[4].since_step;
  };
  EXPECT_EQ(since([](uint64_t step) { return step >= 30; }), 30u);
  EXPECT_EQ(since([](uint64_t step) { return step >= 30 && step % 7 != 0; }), 30u);
  EXPECT_EQ(since([](uint64_t step) { return step >= 30 && step < 48; }), 30u);  // the last ones by chance
  EXPECT_EQ(since([](uint64_t step) { return step >= 30 && step < 45; }), std::nullopt);  // it was over
  EXPECT_EQ(since([](uint64_t step) { return step >= 12; }), std::nullopt);               // it began so
  EXPECT_EQ(since([](uint64_t step) { return step >= 45; }), std::nullopt);               // a bad moment
  EXPECT_EQ(since([](uint64_t step) { return step >= 20 && step % 2 == 0; }), std::nullopt);
}

// It was late by a little before, like others; since step 30 it is by far more.
TEST(Lateness, SinceWhenIsFoundAmongSmallerLateness) {
  LateSteps steps;
  for (uint64_t step = 10; step < 50; ++step) {
    if (step >= 30) {
      AddStep(steps, step, 8, 4, 4000, 4000);
    } else {
      AddStep(steps, step, 8, step % 2 == 0 ? 4 : static_cast<int>(step % 4), 700, 700);
    }
  }
  const Lateness late = LatenessOf(steps.Summarize().ranks)[4];
  EXPECT_FALSE(late.by_chance);
  EXPECT_EQ(late.late, 20u);  // those since then
  EXPECT_EQ(late.since_step, 30u);
}

// Late by about a level's share all along: which steps are above it is chance, and so is since when.
TEST(Lateness, ARankThatIsLateByAboutALevelIsSoAllAlong) {
  LateSteps steps;
  for (uint64_t step = 0; step < 50; ++step) {
    const uint64_t late_by_ns = step < 11 ? 3400 : 4800;
    AddStep(steps, step, 8, 4, late_by_ns, late_by_ns);
  }
  const std::vector<LateSteps::Rank> told = steps.Summarize().ranks;
  ASSERT_EQ(told[4].levels[2].late, 39u);
  const Lateness late = LatenessOf(told)[4];
  EXPECT_EQ(late.late, 50u);
  EXPECT_EQ(late.since_step, std::nullopt);
}

TEST(Lateness, TwoLateStepsMayBeChance) {
  LateSteps steps;
  for (uint64_t step = 0; step < 29; ++step)
    AddStep(steps, step, 8, step == 9 || step == 12 ? 4 : -1, 6000, 6000);
  EXPECT_TRUE(LatenessOf(steps.Summarize().ranks)[4].by_chance);
}

TEST(Lateness, WhoIsLateChangesByChance) {
  std::mt19937 random(1);
  int blamed = 0;
  for (int run = 0; run < 400; ++run) {
    const uint32_t ranks = run % 4 == 0 ? 2 : run % 4 == 1 ? 4 : run % 4 == 2 ? 8 : 64;
    LateSteps steps;
    for (uint64_t step = 0; step < 12 + static_cast<uint64_t>(run) % 50; ++step)
      AddStep(steps, step, ranks, static_cast<int>(random() % ranks), 3000, 3000);
    for (const Lateness& rank : LatenessOf(steps.Summarize().ranks)) blamed += rank.by_chance ? 0 : 1;
  }
  EXPECT_LE(blamed, 2);
}

// In every step some rank is late by 700 of 10,000: rank 4 is not so more often than the others, but every
// sixth time by 4,000.
TEST(Lateness, WhoIsLateByFarMoreIsFoundAmongOthersThatAreLateByALittle) {
  std::mt19937 random(1);
  LateSteps steps;
  for (uint64_t step = 0; step < 60; ++step) {
    if (step % 6 == 3) {
      AddStep(steps, step, 5, 4, 4000, 4000);
    } else {
      AddStep(steps, step, 5, static_cast<int>(random() % 4), 700, 700);
    }
  }
  const std::vector<LateSteps::Rank> told = steps.Summarize().ranks;
  EXPECT_EQ(told[4].levels[0].late, 10u);
  for (int rank = 0; rank < 4; ++rank) EXPECT_GE(told[static_cast<size_t>(rank)].levels[0].late, 10u);
  const std::vector<Lateness> ranks = LatenessOf(told);
  EXPECT_FALSE(ranks[4].by_chance);
  EXPECT_GT(ranks[4].level, 0u);
  EXPECT_EQ(ranks[4].late, 10u);
  EXPECT_NEAR(ranks[4].longer_by_ns, 4000, 700);
  for (size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(ranks[rank].by_chance) << rank;
}

TEST(Lateness, TwoRanksThatTakeTurnsUnevenlyAreChance) {
  LateSteps steps;
  for (uint64_t step = 0; step < 59; ++step)
    AddStep(steps, step, 2, step % 5 < 3 ? 0 : step % 10 == 4 ? -1 : 1, 3000, 3000);
  for (const Lateness& rank : LatenessOf(steps.Summarize().ranks)) EXPECT_TRUE(rank.by_chance);
}

TEST(Lateness, TwoOfEightThatAreAlwaysLateAreNot) {
  LateSteps steps;
  for (uint64_t step = 0; step < 10; ++step) {
    for (uint32_t rank = 0; rank < 8; ++rank) {
      StepRecord r;
      r.end_ns = kShortStepNs;
      r.exposed_comm_ns = rank == 2 || rank == 6 ? 500 : 2500;
      steps.Add(step, rank, r);
    }
  }
  const std::vector<Lateness> ranks = LatenessOf(steps.Summarize().ranks);
  EXPECT_FALSE(ranks[2].by_chance);
  EXPECT_FALSE(ranks[6].by_chance);
  EXPECT_DOUBLE_EQ(ranks[6].lost_ns_per_step(), 2000);
}

TEST(Lateness, StepsThatAreNoLongerHaveLostNothing) {
  LateSteps steps;
  for (uint64_t step = 0; step < 40; ++step) AddStep(steps, step, 8, step < 18 ? 2 : -1, 2000, 0);
  const std::vector<Lateness> ranks = LatenessOf(steps.Summarize().ranks);
  EXPECT_FALSE(ranks[2].by_chance);
  EXPECT_EQ(ranks[2].longer_by_ns, 0);
}

TEST(Lateness, HostsThatNeverWaitAreNotHeldUp) {
  LateSteps steps;
  for (uint64_t step = 0; step < 40; ++step) AddStep(steps, step, 8, 2, 2000, 0, 6000, 150);
  EXPECT_DOUBLE_EQ(LatenessOf(steps.Summarize().ranks)[2].longer_by_ns, 150);
  LateSteps blocked;
  for (uint64_t step = 0; step < 40; ++step) AddStep(blocked, step, 8, 2, 2000, 0, 6000, 3000);
  EXPECT_DOUBLE_EQ(LatenessOf(blocked.Summarize().ranks)[2].longer_by_ns, 2000);
}

TEST(Lateness, WhatHostsAreBlockedForOnceTheyHadBeenAheadBefore) {
  // Rank 2 starts 6000 later than the others and stays behind; a synchronising call in the last step but one
  // has them wait for that, and nobody is behind any more.
  LateSteps steps;
  for (uint64_t step = 0; step < 9; ++step)
    AddStep(steps, step, 8, 2, 6000, 0, 3000, step == 8 ? 6000 : 0, 6000);
  AddStep(steps, 9, 8, -1, 0, 0, 9000);
  const Lateness late = LatenessOf(steps.Summarize().ranks)[2];
  EXPECT_FALSE(late.by_chance);
  EXPECT_EQ(late.longer_by_ns, 0);
  // So does one that falls behind by as much in every step, but the others' hosts get ahead by that.
  LateSteps slow;
  for (uint64_t step = 0; step < 9; ++step)
    AddStep(slow, step, 8, 2, 6000, 0, 3000, step == 8 ? 9 * 1500 : 0, 1500 * step);
  AddStep(slow, 9, 8, -1, 0, 0, 9000);
  // 1500 in each of eight steps; 9 x 1500 less the lead of 8 x 1500 in the last one.
  EXPECT_DOUBLE_EQ(LatenessOf(slow.Summarize().ranks)[2].longer_by_ns, 1500);
}

TEST(Lateness, WhatAStepIsLongerIsNotKnownWithoutTheNextOneWhereHostsSetThePace) {
  LateSteps steps;
  for (uint64_t step = 0; step < 20; step += 2) AddStep(steps, step, 8, 2, 6000, 0, 3000, 6000);
  EXPECT_EQ(LatenessOf(steps.Summarize().ranks)[2].longer_by_ns, 0);
  // Where devices have enough to do, it is.
  LateSteps busy;
  for (uint64_t step = 0; step < 20; step += 2) AddStep(busy, step, 8, 2, 6000, 0, 100, 0);
  EXPECT_DOUBLE_EQ(LatenessOf(busy.Summarize().ranks)[2].longer_by_ns, 5900);
}

// Every rank is late by chance in a step or two, one in four steps: that is nothing unless they are equally
// far apart.
TEST(Lateness, AFewStepsAtEqualDistancesAreNotChance) {
  const auto late = [](std::vector<uint64_t> of_rank_0) {
    LateSteps steps;
    for (uint64_t step = 0; step < 150; ++step) {
      const bool is = std::find(of_rank_0.begin(), of_rank_0.end(), step) != of_rank_0.end();
      AddStep(steps, step, 4, is ? 0 : step == 27 ? 1 : -1, 6000, 6000);
    }
    return LatenessOf(steps.Summarize().ranks)[0];
  };
  const Lateness checkpoints = late({30, 60, 90, 120});
  EXPECT_FALSE(checkpoints.by_chance);
  EXPECT_EQ(checkpoints.late, 4u);
  EXPECT_EQ(checkpoints.late_steps, (std::vector<uint64_t>{30, 60, 90, 120}));
  EXPECT_EQ(checkpoints.pattern, (StepPattern{30, 1}));
  EXPECT_TRUE(late({30, 57, 90, 120}).by_chance);
}

// What it is late by in some steps is far more than in the rest: these few are what it is about.
TEST(Lateness, SmallLatenessBesideFarLargerOneIsNotCounted) {
  LateSteps steps;
  for (uint64_t step = 0; step < 120; ++step) {
    if (step % 20 == 7) {
      AddStep(steps, step, 8, 4, 90'000, 90'000);
    } else {
      AddStep(steps, step, 8, step % 4 == 0 ? 4 : -1, 700, 700);
    }
  }
  const Lateness l = LatenessOf(steps.Summarize().ranks)[4];
  EXPECT_FALSE(l.by_chance);
  EXPECT_EQ(l.late, 6u);
  EXPECT_DOUBLE_EQ(l.late_by_ns, 90'000);
  EXPECT_EQ(l.pattern, (StepPattern{20, 1}));
}

}  // namespace
}  // namespace gpuprobe::analysis
