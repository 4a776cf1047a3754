#include "injector/core/call_clock.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gpuprobe::injector {
namespace {

class CallClockTest : public ::testing::Test {
 protected:
  void SetUp() override { call_clock.Reset(); }
  void TearDown() override { call_clock.Reset(); }

  // Steps of calls of these kinds, one every 10, and a pause before each step.
  void Steps(const std::vector<uint32_t>& kinds, int steps, uint64_t pause = 1000) {
    for (int step = 0; step < steps; ++step) {
      stamp_ += pause;
      for (const uint32_t kind : kinds) call_clock.Note(1, 4, number_++, kind, stamp_ += 10);
    }
  }

  uint64_t number_ = 0;
  uint64_t stamp_ = 1'000'000;
};

TEST_F(CallClockTest, CallsRepeatInSteps) {
  Steps({7, 7, 3}, 40);
  EXPECT_EQ(call_clock.calls(), 120u);
  const CallClock::Period period = call_clock.FindPeriod();
  EXPECT_EQ(period.calls, 3u);
  EXPECT_EQ(period.begin % 3, 0u) << "behind the pause";
}

TEST_F(CallClockTest, EqualCallsAreStepsByTheirPauses) {
  Steps({5, 5, 5, 5}, 100);
  EXPECT_EQ(call_clock.FindPeriod().calls, 4u);
  EXPECT_EQ(call_clock.FindPeriod().begin % 4, 0u);
}

// A program that had no CPU for a while, twice in a row in the middle of a step.
TEST_F(CallClockTest, AFewLongPausesWithinStepsAreAccidents) {
  Steps({5, 5, 5, 5}, 100);
  for (int step = 0; step < 2; ++step) {
    Steps({5, 5}, 1);
    Steps({5, 5}, 1);
  }
  const CallClock::Period period = call_clock.FindPeriod();
  EXPECT_EQ(period.calls, 4u);
  EXPECT_EQ(period.begin % 4, 0u);
}

TEST_F(CallClockTest, WithoutPausesEachOfEqualCallsIsAStep) {
  Steps({5, 5, 5, 5}, 100, 0);
  EXPECT_EQ(call_clock.FindPeriod().calls, 1u);
}

TEST_F(CallClockTest, TheFirstCallsNeedNotBeLikeTheOthers) {
  Steps({1, 2, 3, 4, 5}, 1);
  Steps({7, 3}, 400);
  EXPECT_EQ(call_clock.FindPeriod().calls, 2u);
  EXPECT_EQ((call_clock.FindPeriod().begin - 5) % 2, 0u);
}

TEST_F(CallClockTest, EqualCallsAtTheEndOfAStepAreNoStep) {
  Steps({1, 2, 5, 5, 5, 5, 5, 5}, 40);
  EXPECT_EQ(call_clock.FindPeriod().calls, 8u);
}

TEST_F(CallClockTest, CallsThatDoNotRepeatAreNoSteps) {
  for (uint32_t i = 1; i < 500; ++i) Steps({i}, 1);
  EXPECT_EQ(call_clock.FindPeriod().calls, 0u);
  call_clock.Reset();
  EXPECT_EQ(call_clock.FindPeriod().calls, 0u);
}

TEST_F(CallClockTest, AMissingCallHidesWhatCameBeforeIt) {
  Steps({7, 3}, 10);
  ++number_;
  EXPECT_EQ(call_clock.FindPeriod().calls, 2u);
  Steps({7, 3}, 2);
  EXPECT_EQ(call_clock.FindPeriod().calls, 0u);
  Steps({7, 3}, 10);
  EXPECT_EQ(call_clock.FindPeriod().calls, 2u);
}

TEST_F(CallClockTest, TheLargestCommunicatorCounts) {
  call_clock.Note(1, 1, 0, 5, 10);
  EXPECT_EQ(call_clock.communicator(), 0u) << "of one rank";
  call_clock.Note(2, 4, 10, 5, 10);
  EXPECT_EQ(call_clock.communicator(), 2u);
  EXPECT_EQ(call_clock.calls(), 11u);
  call_clock.Note(3, 2, 99, 5, 10);
  call_clock.Note(4, 4, 99, 5, 10);
  EXPECT_EQ(call_clock.communicator(), 2u);
  EXPECT_EQ(call_clock.calls(), 11u);
  call_clock.Note(5, 8, 3, 5, 10);
  EXPECT_EQ(call_clock.communicator(), 5u);
  EXPECT_EQ(call_clock.calls(), 4u);
}

TEST_F(CallClockTest, OneThatIsNoLongerUsedIsGivenUpForAnotherAsLarge) {
  call_clock.Note(2, 4, 10, 5, 10);
  for (uint64_t i = 0; i < 300; ++i) call_clock.Note(9, 4, i, 5, 10);
  EXPECT_EQ(call_clock.communicator(), 9u);
  EXPECT_EQ(call_clock.calls(), 300u);
}

}  // namespace
}  // namespace gpuprobe::injector
