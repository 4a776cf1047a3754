// Levels whose growth is known.
#include "collector/analysis/memory/memory_trend.h"

#include <gtest/gtest.h>

#include <random>

#include "collector/report/memory.h"
#include "tests/collector/testing/batch_builder.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::kMs;
using gpuprobe::testing::kStart;

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kStepNs = 200 * kMs;

struct Shape {
  uint64_t steps = 100;
  uint64_t held = 1000 * kMib;
  uint64_t activations = 400 * kMib;
  uint64_t leak = 0;                  // a step
  uint64_t grows_until = UINT64_MAX;  // step
};

// Activations come and go within each step; the leak is there from the middle of a step on.
model::LevelHistory Levels(const Shape& shape) {
  model::LevelHistory history;
  history.Add(kStart, shape.held);
  uint64_t leaked = 0;
  for (uint64_t step = 0; step < shape.steps; ++step) {
    const uint64_t start = kStart + step * kStepNs;
    history.Add(start + 20 * kMs, shape.held + leaked + shape.activations / 2);
    if (step < shape.grows_until) leaked += shape.leak;
    history.Add(start + 90 * kMs, shape.held + leaked + shape.activations);
    history.Add(start + 150 * kMs, shape.held + leaked);
  }
  return history;
}

std::vector<uint64_t> Starts(uint64_t steps) {
  std::vector<uint64_t> starts;
  for (uint64_t i = 0; i <= steps; ++i) starts.push_back(kStart + i * kStepNs);
  return starts;
}

std::optional<MemoryTrend> TrendOf(const Shape& shape) {
  return analysis::TrendOf(Levels(shape), Starts(shape.steps), 4000 * kMib);
}

TEST(MemoryTrend, WhatIsHeldIsToldFromWhatLivesWithinAStep) {
  const auto trend = TrendOf({});
  ASSERT_TRUE(trend.has_value());
  EXPECT_EQ(trend->held_bytes, 1000 * kMib);
  EXPECT_EQ(trend->within_step_bytes, 400 * kMib);
  EXPECT_EQ(trend->peak_bytes, 1400 * kMib);
  EXPECT_FALSE(trend->growth_bytes_per_step.has_value());
}

TEST(MemoryTrend, GrowthPerStepAndWhenItRunsOut) {
  // Short runs and runs of many buckets' length.
  for (const uint64_t steps : {20u, 100u, 5000u}) {
    Shape shape;
    shape.steps = steps;
    shape.leak = 2000 * kMib / steps;
    const auto trend = TrendOf(shape);
    ASSERT_TRUE(trend.has_value() && trend->growth_bytes_per_step.has_value()) << steps;
    EXPECT_NEAR(*trend->growth_bytes_per_step, static_cast<double>(shape.leak),
                0.02 * static_cast<double>(shape.leak))
        << steps;
    // 1000 + 2000 held and 400 within a step at the end, of 4000.
    EXPECT_NEAR(trend->steps_until_full.value_or(0),
                600.0 * static_cast<double>(kMib) / static_cast<double>(shape.leak),
                0.05 * 600.0 * static_cast<double>(kMib) / static_cast<double>(shape.leak))
        << steps;
  }
}

// The host is ahead of the device: ten steps in a burst, and then it waits.
TEST(MemoryTrend, BurstsOfTheHostDoNotHideGrowth) {
  model::LevelHistory history;
  std::vector<uint64_t> starts;
  for (uint64_t step = 0; step <= 40; ++step) {
    starts.push_back(kStart + step / 10 * 10 * kStepNs + step % 10 * 3 * kMs);
    history.Add(starts.back(), (1000 + 64 * step) * kMib);
    history.Add(starts.back() + kMs, (1400 + 64 * step) * kMib);
    history.Add(starts.back() + 2 * kMs, (1000 + 64 * step) * kMib);
  }
  const auto trend = analysis::TrendOf(history, starts, {});
  ASSERT_TRUE(trend.has_value() && trend->growth_bytes_per_step.has_value());
  EXPECT_NEAR(*trend->growth_bytes_per_step, 64.0 * kMib, 2.0 * kMib);
}

TEST(MemoryTrend, WhatGrowsAtFirstAndThenStaysIsNoLeak) {
  Shape shape;
  shape.leak = 20 * kMib;
  shape.grows_until = 40;
  EXPECT_FALSE(TrendOf(shape)->growth_bytes_per_step.has_value());
}

// What the driver sees of an allocator that takes a block now and then, and keeps it.
TEST(MemoryTrend, AFewBlocksAreNoLeakAndManyAre) {
  const auto grows = [](uint64_t steps_per_block) {
    model::LevelHistory history;
    for (uint64_t step = 0; step < 60; ++step)
      history.Add(kStart + step * kStepNs, (258 + 20 * (step / steps_per_block)) * kMib);
    return analysis::TrendOf(history, Starts(60), {})->growth_bytes_per_step.has_value();
  };
  EXPECT_FALSE(grows(20));  // 2 blocks
  EXPECT_FALSE(grows(15));  // 3
  EXPECT_FALSE(grows(10));  // 5
  EXPECT_TRUE(grows(6));    // 9
}

TEST(MemoryTrend, NoiseIsNoLeak) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    model::LevelHistory history;
    for (uint64_t step = 0; step < 100; ++step) {
      history.Add(kStart + step * kStepNs, 1000 * kMib + random() % (50 * kMib));
      history.Add(kStart + step * kStepNs + 100 * kMs, 1400 * kMib + random() % (50 * kMib));
    }
    EXPECT_FALSE(analysis::TrendOf(history, Starts(100), {})->growth_bytes_per_step.has_value()) << seed;
  }
}

TEST(MemoryTrend, NeedsStepsAndLevels) {
  EXPECT_FALSE(TrendOf({.steps = 9}).has_value());
  EXPECT_FALSE(analysis::TrendOf({}, Starts(50), {}).has_value());
}

TEST(LevelHistory, StaysBoundedAndKeepsPeaks) {
  model::LevelHistory history;
  for (uint64_t i = 0; i < 1'000'000; ++i) history.Add(kStart + i * kMs, i == 777'777 ? 9'999 : i % 100);
  EXPECT_LE(history.buckets().size(), model::LevelHistory::kMaxBuckets);
  EXPECT_EQ(history.Within(0, UINT64_MAX).greatest, 9'999u);
  EXPECT_EQ(history.Within(0, UINT64_MAX).least, 0u);
  // After the last change the level stays.
  EXPECT_EQ(history.Within(kStart + 2'000'000 * kMs, kStart + 2'000'001 * kMs).least, 99u);
}

}  // namespace
}  // namespace gpuprobe::analysis
