// Where a series changes its level, and near misses.
#include "collector/analysis/level_change.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "collector/analysis/thresholds.h"

namespace gpuprobe::analysis {
namespace {

// `count` values about `level`, varying by a share.
void Append(std::vector<double>& values, size_t count, double level, double share, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> noise;
  for (size_t i = 0; i < count; ++i) values.push_back(level * std::max(0.2, 1 + share * noise(engine)));
}

TEST(LevelChange, IsWhereTransfersBecomeTwiceAsLongForGood) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<double> values;
    const size_t before = 3 + seed % 40;
    Append(values, before, 100, 0.1, seed);
    Append(values, 60 - before, 300, 0.1, seed + 1000);
    const auto change = LevelChangeOf(values, thresholds::kSlowedRatio);
    ASSERT_TRUE(change.has_value());
    EXPECT_EQ(change->place, before);
    EXPECT_NEAR(change->before, 100, 15);
    EXPECT_NEAR(change->after, 300, 30);
  }
}

TEST(LevelChange, IsNotFoundInNoiseDriftOrAFewSlowCalls) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<double> noise;
    Append(noise, 60, 100, 0.3, seed);
    EXPECT_FALSE(LevelChangeOf(noise, thresholds::kSlowedRatio).has_value());
    std::vector<double> hiccup;
    Append(hiccup, 30, 100, 0.05, seed);
    Append(hiccup, 5, 1000, 0.05, seed);
    Append(hiccup, 25, 100, 0.05, seed);
    EXPECT_FALSE(LevelChangeOf(hiccup, thresholds::kSlowedRatio).has_value());
    std::vector<double> little;
    Append(little, 30, 100, 0.05, seed);
    Append(little, 30, 160, 0.05, seed);
    EXPECT_FALSE(LevelChangeOf(little, thresholds::kSlowedRatio).has_value());
  }
  EXPECT_FALSE(LevelChangeOf({100, 100, 300, 300}, thresholds::kSlowedRatio).has_value())
      << "too few to tell";
}

TEST(LevelChange, OfStepsIsAFewPercentAndNoDrift) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::vector<double> steps;
    Append(steps, 36, 17.0, 0.004, seed);
    Append(steps, 84, 18.0, 0.004, seed + 1000);
    const auto change = LevelChangeOf(steps, thresholds::kStepLevelRatio);
    ASSERT_TRUE(change.has_value());
    EXPECT_EQ(change->place, 36U);
    std::vector<double> drift;
    for (size_t i = 0; i < 120; ++i)
      Append(drift, 1, 17.0 + static_cast<double>(i) * 0.05, 0.004, seed * 1000 + i);
    EXPECT_FALSE(LevelChangeOf(drift, thresholds::kStepLevelRatio).has_value()) << "it rises all the time";
    std::vector<double> noise;
    Append(noise, 120, 17.0, 0.05, seed);
    EXPECT_FALSE(LevelChangeOf(noise, thresholds::kStepLevelRatio).has_value());
  }
}

}  // namespace
}  // namespace gpuprobe::analysis
