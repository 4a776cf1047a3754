// When a sample is due, and what it stands for.
#include "injector/sampling/gap_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "injector/sampling/sample_budget.h"

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kMs = GapWatch::kMsNs;
constexpr uint64_t kStart = 1'000'000 * kMs;

using Sample = GapWatch::Sample;

TEST(GapWatch, NothingIsSampledBeforeTheFirstLaunch) {
  GapWatch watch;
  Sample sample;
  for (uint64_t ms = 0; ms < 5000; ms += 10) EXPECT_FALSE(watch.Look(kStart + ms * kMs, 0, &sample));
  EXPECT_GE(watch.RestNs(), 100 * kMs);
}

TEST(GapWatch, EachLookInAGapIsASampleOfWhatCameSinceTheOneBefore) {
  GapWatch watch;
  Sample sample;
  ASSERT_TRUE(watch.Look(kStart + 4 * kMs, kStart, &sample));
  EXPECT_TRUE(sample.in_gap);
  EXPECT_EQ(sample.since_ns, kStart);
  ASSERT_TRUE(watch.Look(kStart + 13 * kMs, kStart, &sample));
  EXPECT_EQ(sample.since_ns, kStart + 4 * kMs);
  // Launches went on, and stopped again.
  ASSERT_TRUE(watch.Look(kStart + 40 * kMs, kStart + 30 * kMs, &sample));
  EXPECT_EQ(sample.since_ns, kStart + 30 * kMs);
}

TEST(GapWatch, AProcessThatLaunchesIsSampledAtEveryFourthLook) {
  GapWatch watch;
  Sample sample;
  int samples = 0;
  for (int i = 1; i <= 1000; ++i) {
    const uint64_t now = kStart + static_cast<uint64_t>(i) * 10 * kMs;
    if (!watch.Look(now, now - kMs / 2, &sample)) continue;
    ++samples;
    EXPECT_FALSE(sample.in_gap);
    if (samples > 1) {
      EXPECT_EQ(sample.since_ns, now - 40 * kMs);
    }
  }
  EXPECT_EQ(samples, 250);
}

TEST(GapWatch, SamplesNeverStandForTheSameTimeTwice) {
  GapWatch watch;
  Sample sample;
  uint64_t covered_until = 0;
  uint64_t launched = kStart;
  uint64_t random = 1;
  for (uint64_t now = kStart; now < kStart + 20'000 * kMs; now += watch.RestNs()) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (random >> 62 == 0) launched = now - (random >> 33) % (2 * kMs);
    if (!watch.Look(now, launched, &sample)) continue;
    EXPECT_GE(sample.since_ns, covered_until);
    EXPECT_LE(sample.since_ns, now);
    covered_until = now;
  }
}

TEST(GapWatch, LooksAreFarApartAfterAMinuteAndEndAfterTenUntilItLaunchesAgain) {
  GapWatch watch;
  Sample sample;
  EXPECT_TRUE(watch.Look(kStart + 59'000 * kMs, kStart, &sample));
  EXPECT_LT(watch.RestNs(), 20 * kMs);
  EXPECT_TRUE(watch.Look(kStart + 61'000 * kMs, kStart, &sample));
  EXPECT_EQ(watch.RestNs(), 1000 * kMs);
  EXPECT_FALSE(watch.Look(kStart + 601'000 * kMs, kStart, &sample));
  EXPECT_TRUE(watch.Look(kStart + 700'000 * kMs, kStart + 699'990 * kMs, &sample));
  EXPECT_EQ(sample.since_ns, kStart + 699'990 * kMs);
  EXPECT_LT(watch.RestNs(), 20 * kMs);
}

TEST(GapWatch, AStoppedProcessDidNothing) {
  GapWatch watch;
  Sample sample;
  ASSERT_TRUE(watch.Look(kStart + 10 * kMs, kStart, &sample));
  const uint64_t continued = kStart + 30'000 * kMs;
  ASSERT_TRUE(watch.Look(continued, kStart, &sample));
  EXPECT_EQ(sample.since_ns, continued - GapWatch::kMostStoodForNs);
}

TEST(GapWatch, WhatWasNotToBeSampledIsStoodForByNothing) {
  GapWatch watch;
  Sample sample;
  ASSERT_TRUE(watch.Look(kStart + 10 * kMs, kStart, &sample));
  watch.Skip(kStart + 500 * kMs);
  ASSERT_TRUE(watch.Look(kStart + 510 * kMs, kStart, &sample));
  EXPECT_EQ(sample.since_ns, kStart + 500 * kMs);
}

TEST(GapWatch, AClockThatIsSetBackMakesNoTimeBelowZero) {
  GapWatch watch;
  Sample sample;
  watch.Look(kStart + 10 * kMs, kStart, &sample);
  for (int i = 0; i < 20; ++i) {
    if (watch.Look(kMs, kStart, &sample)) {
      EXPECT_LE(sample.since_ns, kMs);
    }
  }
}

TEST(GapWatch, LooksDoNotBeatWithTheProgramsSteps) {
  GapWatch watch;
  Sample sample;
  watch.Look(kStart, kStart - kMs, &sample);
  std::set<uint64_t> rests;
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t rest = watch.RestNs();
    rests.insert(rest / kMs);
    sum += rest;
  }
  EXPECT_GE(rests.size(), 5U);
  EXPECT_NEAR(static_cast<double>(sum) / 1000, 10.0 * kMs, 0.5 * kMs);
}

// Steps of 42 ms: the host waits 28 ms, where a look costs 300 us, then does something else for 6 ms, and
// launches for 8 ms. At a rest of 42 ms after each costly look nearly all of them would be in the wait.
TEST(GapWatch, EachPlaceOfAStepIsSeenAsOftenAsItIsLongWhateverLooksCostThere) {
  GapWatch watch;
  SampleBudget budget;
  Sample sample;
  int looks = 0;
  int other = 0;
  uint64_t now = kStart;
  while (now < kStart + 200'000 * kMs) {
    budget.PassUntil(now);
    const uint64_t step = now - now % (42 * kMs);
    const uint64_t at = now - step;
    if (budget.Allows()) {
      watch.Look(now, at < 34 * kMs ? step - kMs : now, &sample);
      budget.TakeSample();
      budget.TakeCpu(at < 28 * kMs ? 300'000 : 60'000);
      ++looks;
      other += at >= 28 * kMs && at < 34 * kMs ? 1 : 0;
    }
    now += std::max(watch.RestNs(budget.PaceNs()), budget.RestNs());
  }
  EXPECT_GE(looks, 200'000 / 60);
  EXPECT_NEAR(static_cast<double>(other) / looks, 6.0 / 42, 0.02);
}

}  // namespace
}  // namespace gpuprobe::injector
