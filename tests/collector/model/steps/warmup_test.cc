#include "collector/model/steps/warmup.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>

namespace gpuprobe::model {
namespace {

std::deque<StepRecord> StepsAfter(size_t warmup, size_t count) {
  std::deque<StepRecord> steps(count);
  for (size_t i = 0; i < count; ++i) steps[i].end_ns = i < warmup ? 400 : i % 2 == 0 ? 100 : 130;
  return steps;
}

TEST(Warmup, IsFoundWhateverItsLength) {
  for (size_t count = 12; count <= kWarmupLook; ++count) {
    for (size_t warmup = 0; 4 * warmup + 4 < 3 * count; ++warmup)
      ASSERT_EQ(WarmupLength(StepsAfter(warmup, count)), warmup) << "of " << count;
  }
}

TEST(Warmup, OfAFewStepsTheFirstMayBe) {
  EXPECT_EQ(WarmupLength({}), 0u);
  EXPECT_EQ(WarmupLength(StepsAfter(1, 2)), 0u);
  EXPECT_EQ(WarmupLength(StepsAfter(1, 3)), 1u);
  EXPECT_EQ(WarmupLength(StepsAfter(1, 5)), 1u);
}

TEST(Warmup, ALongStepLaterIsNone) {
  std::deque<StepRecord> steps = StepsAfter(2, 40);
  steps[3].end_ns = 1000;
  EXPECT_EQ(WarmupLength(steps), 2u);
}

}  // namespace
}  // namespace gpuprobe::model
