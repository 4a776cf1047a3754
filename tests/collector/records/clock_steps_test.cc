#include "collector/records/clock_steps.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpuprobe::model {
namespace {

TEST(ClockSteps, OnlyWhatHoldsTheStepIsShorter) {
  constexpr uint64_t kMs = 1'000'000;
  ClockSteps steps;
  EXPECT_EQ(steps.Length(kMs, 3 * kMs), 2 * kMs);
  // Between 100 ms, as the clock was, and 1000 ms, as it is.
  steps.Note(80 * kMs, 100 * kMs, 1000 * kMs);
  EXPECT_EQ(steps.Length(400 * kMs, 482 * kMs), 2 * kMs);
  EXPECT_EQ(steps.Length(400 * kMs, 401 * kMs), kMs) << "too short to hold it";
  EXPECT_EQ(steps.Length(10 * kMs, 95 * kMs), 85 * kMs) << "over before it";
  EXPECT_EQ(steps.Length(1001 * kMs, 1090 * kMs), 89 * kMs) << "began after it";
  EXPECT_EQ(steps.Length(400 * kMs, 480 * kMs - 2000), 0u) << "the readings are that inexact";
}

}  // namespace
}  // namespace gpuprobe::model
