#include "collector/timeline/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuprobe::timeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Selection, StepsAreHalfOpen) {
  const auto span = [](const char* text) {
    const auto parsed = ParseSteps(text);
    return parsed.ok() ? std::pair(parsed->first, parsed->end) : std::pair(UINT64_MAX, uint64_t{0});
  };
  EXPECT_EQ(span("100:110"), std::pair(uint64_t{100}, uint64_t{110}));
  EXPECT_EQ(span("7"), std::pair(uint64_t{7}, uint64_t{8}));
  EXPECT_EQ(span("7:"), std::pair(uint64_t{7}, UINT64_MAX));
  EXPECT_EQ(span(":7"), std::pair(uint64_t{0}, uint64_t{7}));
}

TEST(Selection, StepsThatMakeNoSenseAreNamed) {
  for (const char* text : {"", ":", "a", "5:5", "9:3", "1:2:3", "-1", "1-2", "99999999999999999999"}) {
    const auto parsed = ParseSteps(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(std::string("got \"") + text + "\""));
  }
}

TEST(Selection, RanksAreListedAndRanged) {
  EXPECT_THAT(*ParseRanks("3,0,8-11,9"), ElementsAre(0, 3, 8, 9, 10, 11));
  for (const char* text : {"", "a", "1,", "3-1", "1-2-3", "-1", "0-99999999"})
    EXPECT_FALSE(ParseRanks(text).ok()) << text;
}

// Two ranks, steps of 10: the second rank is 3 late.
std::vector<AlignedStep> Steps() {
  std::vector<AlignedStep> steps;
  for (uint64_t rank : {0, 1}) {
    for (uint64_t i = 0; i < 10; ++i)
      steps.push_back({.index = i,
                       .start_ns = 100 + 10 * i + 3 * rank,
                       .end_ns = 110 + 10 * i + 3 * rank,
                       .warmup = i == 0});
  }
  return steps;
}

TEST(Selection, AWindowCoversTheStepsOfAllRanks) {
  const auto window = WindowOfSteps(Steps(), {.first = 2, .end = 4});
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(std::pair(window->from_ns, window->until_ns), std::pair(uint64_t{120}, uint64_t{143}));
  EXPECT_THAT(std::string(WindowOfSteps(Steps(), {.first = 10, .end = 12}).status().message()),
              HasSubstr("steps 0 to 9"));
  EXPECT_FALSE(WindowOfSteps({}, {}).ok());
}

TEST(Selection, AMomentIsShownWithTheStepsAroundIt) {
  std::string what;
  const auto at = WindowOfMoment({.step = std::nullopt, .time_ns = 155}, Steps(), what);
  EXPECT_EQ(std::pair(at->from_ns, at->until_ns), std::pair(uint64_t{140}, uint64_t{173}));
  EXPECT_EQ(what, "step 5, and one step before and after");
  const auto first = WindowOfMoment({.step = 0, .time_ns = std::nullopt}, Steps(), what);
  EXPECT_EQ(first->from_ns, 100);
  const auto typical = WindowOfMoment({}, Steps(), what);
  EXPECT_TRUE(typical.ok());
  EXPECT_THAT(what, HasSubstr("a typical step"));
}

TEST(Selection, OutsideOfAllStepsItIsASecondBeforeAndAfter) {
  std::string what;
  const auto window = WindowOfMoment({.step = std::nullopt, .time_ns = 5'000'000'000}, Steps(), what);
  EXPECT_EQ(std::pair(window->from_ns, window->until_ns),
            std::pair(uint64_t{4'000'000'000}, uint64_t{6'000'000'000}));
  EXPECT_FALSE(WindowOfMoment({}, {}, what).ok());
}

}  // namespace
}  // namespace gpuprobe::timeline
