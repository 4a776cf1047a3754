#include "collector/analysis/stragglers/step_pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace gpuprobe::analysis {
namespace {

using Steps = std::vector<uint64_t>;

// `length` steps from each of `starts`.
Steps Bursts(const Steps& starts, uint64_t length) {
  Steps steps;
  for (const uint64_t start : starts) {
    for (uint64_t i = 0; i < length; ++i) steps.push_back(start + i);
  }
  return steps;
}

TEST(StepPattern, FindsSingleStepsAndStretchesThatRecur) {
  EXPECT_EQ(StepPatternOf(Steps{30, 60, 90, 120}), (StepPattern{30, 1}));
  EXPECT_EQ(StepPatternOf(Steps{2, 4, 6, 8}), (StepPattern{2, 1}));
  EXPECT_EQ(StepPatternOf(Steps{30, 60, 91, 120, 150}), (StepPattern{30, 1}));  // one is a step late
  EXPECT_EQ(StepPatternOf(Bursts({0, 30, 60, 90}, 15)), (StepPattern{30, 15}));
  Steps holed = Bursts({0, 30, 60, 90}, 15);
  holed.erase(holed.begin() + 7);
  EXPECT_EQ(StepPatternOf(holed), (StepPattern{30, 15}));
  Steps cut = Bursts({0, 30, 60, 90}, 15);
  cut.resize(cut.size() - 10);
  EXPECT_EQ(StepPatternOf(cut), (StepPattern{30, 15}));
}

TEST(StepPattern, OneOtherStepToFourHidesNoPatternOfMost) {
  EXPECT_EQ(StepPatternOf(Steps{19, 34, 39, 59, 79, 99}), std::nullopt);
  const std::optional<StepPattern> most = StepPatternOfMost(Steps{19, 34, 39, 59, 79, 99});
  EXPECT_EQ(most, (StepPattern{20, 1}));
  ASSERT_TRUE(most.has_value());
  EXPECT_EQ(most->first, 19U);
  EXPECT_EQ(most->others, 1U);
  EXPECT_EQ(StepPatternOfMost(Steps{19, 39, 58, 79, 99, 100}),
            (StepPattern{20, 1}));  // one comes a step early
  EXPECT_EQ(StepPatternOfMost(Steps{20, 40, 60})->others, 0U);
  // Too few, too many others, and one that fails to come.
  EXPECT_EQ(StepPatternOfMost(Steps{19, 34, 39, 59}), std::nullopt);
  EXPECT_EQ(StepPatternOfMost(Steps{19, 34, 39, 51, 59, 79, 99}), std::nullopt);
  EXPECT_EQ(StepPatternOfMost(Steps{19, 34, 39, 59, 99, 119}), std::nullopt);
  EXPECT_EQ(StepPatternOfMost(Steps{}), std::nullopt);
  EXPECT_EQ(StepPatternOfMost(Steps{3, 11, 14, 29, 41, 58, 64, 90}), std::nullopt);
}

TEST(StepPattern, LongStretchesStandOutAmongAFewSingleSteps) {
  // Half a minute of every minute and a half, and what chance made late.
  Steps steps = Bursts({40, 120, 200}, 30);
  for (const uint64_t stray : {0, 39, 100, 231, 249}) steps.push_back(stray);
  std::sort(steps.begin(), steps.end());
  const std::optional<StepPattern> pattern = StepPatternOf(steps);
  EXPECT_EQ(pattern, (StepPattern{80, 30}));
  ASSERT_TRUE(pattern.has_value());
  EXPECT_NEAR(static_cast<double>(pattern->first), 40, 1);
  EXPECT_EQ(StepPatternOf(Bursts({40, 121, 201}, 30)), (StepPattern{80, 30})) << "one begins a step late";
}

TEST(StepPattern, SingleStepsThatAreMoreThanAFewHideNoPattern) {
  Steps steps = Bursts({40, 120, 200}, 30);
  for (uint64_t stray = 0; stray < 36; stray += 3) steps.push_back(stray);
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ(StepPatternOf(steps), std::nullopt);
  // Short stretches could be chance themselves.
  Steps shorter = Bursts({10, 20, 30}, 2);
  shorter.push_back(26);
  std::sort(shorter.begin(), shorter.end());
  EXPECT_EQ(StepPatternOf(shorter), std::nullopt);
  // Long, but neither equally far apart nor equally long.
  EXPECT_EQ(StepPatternOf(Bursts({40, 120, 215}, 30)), std::nullopt);
}

TEST(StepPattern, ThereIsNoneInFewOrUnevenSteps) {
  EXPECT_EQ(StepPatternOf({}), std::nullopt);
  EXPECT_EQ(StepPatternOf(Steps{30, 60}), std::nullopt);
  EXPECT_EQ(StepPatternOf(Steps{30, 60, 91}), std::nullopt);
  EXPECT_EQ(StepPatternOf(Steps{10, 14, 17, 30, 41}), std::nullopt);
  EXPECT_EQ(StepPatternOf(Steps{30, 60, 90, 150, 180}), std::nullopt);
  EXPECT_EQ(StepPatternOf(Bursts({10}, 20)), std::nullopt);
  // Far apart alike, but not equally long.
  Steps uneven = Bursts({0, 60}, 15);
  for (const uint64_t step : Bursts({30, 90}, 3)) uneven.push_back(step);
  std::sort(uneven.begin(), uneven.end());
  EXPECT_EQ(StepPatternOf(uneven), std::nullopt);
}

TEST(StepPattern, IsSaidInWords) {
  EXPECT_EQ(PatternText({30, 1}), "every 30 steps");
  EXPECT_EQ(PatternText({30, 15}), "for 15 of every 30 steps");
}

}  // namespace
}  // namespace gpuprobe::analysis
