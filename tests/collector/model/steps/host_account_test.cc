#include "collector/model/steps/host_account.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace gpuprobe::model {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

HostPlace HostPlaceAt(uint32_t function, uint32_t call = 0) {
  HostPlace place;
  place.call = call;
  place.at = place.own = {.function = function, .file = 1, .line = 10};
  return place;
}

class HostAccountTest : public ::testing::Test {
 protected:
  void Sample(uint64_t time_ms, uint64_t since_ms, const HostPlace& place, bool in_gap = true) {
    samples_.push_back({.time_ns = time_ms * kMillisecond,
                        .since_ns = since_ms * kMillisecond,
                        .in_gap = in_gap,
                        .place = place});
  }
  std::map<HostPlace, HostTime> Account(uint64_t from_ms, uint64_t to_ms, IdleCause cause = IdleCause::kPause,
                                        uint64_t silent_ms = 1000) {
    const HostActivity host{.memory = memory_, .calls = calls_, .samples = samples_};
    HostAccount account(host);
    account.Add(cause, from_ms * kMillisecond, to_ms * kMillisecond, silent_ms * kMillisecond);
    std::map<HostPlace, HostTime> places;
    for (const HostShare& share : account.Take()) {
      EXPECT_EQ(share.cause, cause);
      places[share.place] = share.time;
    }
    return places;
  }

  std::vector<HostInterval> memory_;
  std::vector<HostInterval> calls_;
  std::vector<HostSample> samples_;
};

TEST_F(HostAccountTest, ASampleStandsForTheTimeSinceTheOneBefore) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(2));
  const auto places = Account(0, 30);
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places.at(HostPlaceAt(1)).ns, 10 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(2)).ns, 10 * kMillisecond) << "the last 10 ms are not sampled";
  EXPECT_EQ(places.at(HostPlaceAt(2)).samples, 1);
}

TEST_F(HostAccountTest, TheLastSampleOfASilenceStandsForAsLongAgain) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(2));
  EXPECT_EQ(Account(0, 28, IdleCause::kPause, 0).at(HostPlaceAt(2)).ns, 18 * kMillisecond);
  EXPECT_EQ(Account(0, 40, IdleCause::kPause, 0).at(HostPlaceAt(2)).ns, 20 * kMillisecond);
  EXPECT_EQ(Account(23, 28, IdleCause::kPause, 0).at(HostPlaceAt(2)).ns, 5 * kMillisecond)
      << "the device ran dry later";
  EXPECT_TRUE(Account(23, 28, IdleCause::kPause, 21).empty()) << "the host launched since";
}

TEST_F(HostAccountTest, BetweenStepsASampleStandsForAllTheTimeSinceTheOneBefore) {
  Sample(10, 7, HostPlaceAt(1));
  Sample(25, 24, HostPlaceAt(1), false);
  Sample(30, 28, HostPlaceAt(2));
  const auto places = Account(0, 40, IdleCause::kBetween);
  ASSERT_EQ(places.size(), 2);
  EXPECT_EQ(places.at(HostPlaceAt(1)).ns, 25 * kMillisecond) << "launches between them are part of it";
  EXPECT_EQ(places.at(HostPlaceAt(2)).ns, 5 * kMillisecond);
}

TEST_F(HostAccountTest, ASampleCountsWhereItWasTaken) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(2));
  Sample(25, 20, HostPlaceAt(3), false);
  const auto places = Account(0, 15);
  EXPECT_EQ(places.at(HostPlaceAt(1)).samples, 1);
  EXPECT_EQ(places.at(HostPlaceAt(2)).ns, 5 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(2)).samples, 0) << "the host was elsewhere when it was taken";
  const auto later = Account(15, 30, IdleCause::kPause);
  EXPECT_EQ(later.at(HostPlaceAt(2)).weight, HostTime::kLook);
  EXPECT_EQ(later.at(HostPlaceAt(3)).weight, 4 * HostTime::kLook) << "one look in four is a sample then";
}

TEST_F(HostAccountTest, ASampleInARecordedCallSaysNothingOfTheRest) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(1));
  calls_ = {{.start_ns = 12 * kMillisecond, .end_ns = 24 * kMillisecond, .name = 7}};
  const auto places = Account(0, 30, IdleCause::kPause, 0);
  const HostTime code = places.at(HostPlaceAt(1));
  EXPECT_EQ(code.samples, 1);
  EXPECT_EQ(code.code_samples, 1);
  EXPECT_EQ(code.measured_ns, 0);
  const HostTime call = places.at(HostPlaceAt(1, 7));
  EXPECT_EQ(call.samples, 1);
  EXPECT_EQ(call.code_samples, 0);
  EXPECT_EQ(call.weight, 0);
  EXPECT_EQ(call.measured_ns, 12 * kMillisecond);
}

TEST_F(HostAccountTest, OnlyWhatIsIdleCounts) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(1));
  EXPECT_EQ(Account(4, 12).at(HostPlaceAt(1)).ns, 8 * kMillisecond);
  EXPECT_EQ(Account(4, 12).at(HostPlaceAt(1)).samples, 1);
  EXPECT_TRUE(Account(21, 30).empty());
}

TEST_F(HostAccountTest, WithoutSamplesAndCallsNothingIsKnown) {
  memory_ = {{.start_ns = 0, .end_ns = 30 * kMillisecond}};
  EXPECT_TRUE(Account(0, 30).empty()) << "the cause says as much";
}

TEST_F(HostAccountTest, RecordedCallsComeBeforeSamples) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(2));
  calls_ = {{.start_ns = 12 * kMillisecond, .end_ns = 14 * kMillisecond, .name = 7}};
  const auto places = Account(0, 20);
  EXPECT_EQ(places.at(HostPlaceAt(1)).ns, 10 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(2)).ns, 8 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(2, 7)).ns, 2 * kMillisecond) << "the line is the sample's";
}

TEST_F(HostAccountTest, RecordedCallsCountWithoutSamples) {
  calls_ = {{.start_ns = 2 * kMillisecond, .end_ns = 9 * kMillisecond, .name = 7}};
  HostPlace call;
  call.call = 7;
  const auto places = Account(0, 10);
  ASSERT_EQ(places.size(), 1);
  EXPECT_EQ(places.at(call).ns, 7 * kMillisecond);
  EXPECT_EQ(places.at(call).samples, 0);
}

TEST_F(HostAccountTest, ACallThatIsRecordedIsNotTheWholeTimeOfItsSample) {
  Sample(10, 0, HostPlaceAt(1, 7));
  calls_ = {{.start_ns = 9 * kMillisecond, .end_ns = 11 * kMillisecond, .name = 7}};
  const auto places = Account(0, 20);
  EXPECT_EQ(places.at(HostPlaceAt(1)).ns, 9 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(1, 7)).ns, 1 * kMillisecond);
}

TEST_F(HostAccountTest, ACallOfMemoryIsNamedByTheSampleInIt) {
  Sample(10, 0, HostPlaceAt(1, 7));
  memory_ = {{.start_ns = 0, .end_ns = 20 * kMillisecond}};
  HostPlace place = HostPlaceAt(1, 7);
  place.kind = HostPlace::Kind::kMemoryCall;
  const auto places = Account(0, 10, IdleCause::kMemory);
  ASSERT_EQ(places.size(), 1);
  EXPECT_EQ(places.at(place).ns, 10 * kMillisecond);
}

TEST_F(HostAccountTest, WaitingForAProcessorIsAPlaceOfItsOwn) {
  Sample(10, 0, HostPlaceAt(1));
  samples_.back().run_delay_ns = 7 * kMillisecond;
  HostPlace none;
  none.kind = HostPlace::Kind::kNoCpu;
  const auto places = Account(0, 10);
  EXPECT_EQ(places.at(none).ns, 7 * kMillisecond);
  EXPECT_EQ(places.at(none).samples, 1) << "it counts where most of its time is";
  EXPECT_EQ(places.at(HostPlaceAt(1)).ns, 3 * kMillisecond);
  EXPECT_EQ(places.at(HostPlaceAt(1)).samples, 0);
}

TEST_F(HostAccountTest, WhatWasSampledBetweenLaunchesSaysNothingOfSilencesBeforeIt) {
  Sample(100, 0, HostPlaceAt(1), false);
  EXPECT_TRUE(Account(10, 40).empty());
  EXPECT_EQ(Account(90, 110).at(HostPlaceAt(1)).ns, 20 * kMillisecond) << "it fell into this one";
  EXPECT_EQ(Account(10, 40, IdleCause::kHostBound).at(HostPlaceAt(1)).ns, 30 * kMillisecond);
}

TEST_F(HostAccountTest, EvidenceIsOfSilences) {
  Sample(10, 0, HostPlaceAt(1));
  Sample(20, 10, HostPlaceAt(2));
  samples_.back().place.task = HostTask::kLoads;
  const HostActivity host{.samples = samples_};
  const HostAccount::Evidence evidence = HostAccount(host).EvidenceOf(5 * kMillisecond, 26 * kMillisecond);
  EXPECT_EQ(evidence.sampled_ns, 21 * kMillisecond);
  EXPECT_EQ(evidence.loading_ns, 16 * kMillisecond);
  EXPECT_TRUE(evidence.IsEnough(42 * kMillisecond));
  EXPECT_TRUE(evidence.Loads());
  EXPECT_FALSE(evidence.IsEnough(43 * kMillisecond));
}

// Hostile or not: places never have more than the idle time, and with samples for all of it, all.
TEST_F(HostAccountTest, PlacesAddUpToTheIdleTime) {
  std::mt19937_64 random(7);
  const auto pick = [&](uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 2000; ++round) {
    samples_.clear();
    calls_.clear();
    memory_.clear();
    const bool whole = round % 2 == 0;
    uint64_t at = 0;
    while (at < 1000) {
      const uint64_t since = whole ? at : at + pick(30);
      at = since + 1 + pick(50);
      samples_.push_back(
          {.time_ns = at,
           .since_ns = whole ? since : pick(at),
           .run_delay_ns = pick(60),
           .in_gap = whole || pick(1) == 0,
           .place = HostPlaceAt(static_cast<uint32_t>(1 + pick(3)), static_cast<uint32_t>(pick(1)))});
    }
    for (uint64_t start = pick(100); start < 1000; start += pick(200))
      calls_.push_back({.start_ns = start, .end_ns = start + pick(80), .name = 9});
    for (uint64_t start = pick(100); start < 1000; start += pick(200))
      memory_.push_back({.start_ns = start, .end_ns = start + pick(80)});
    const HostActivity host{.memory = memory_, .calls = calls_, .samples = samples_};
    HostAccount account(host);
    uint64_t idle_ns = 0;
    for (uint64_t from = pick(50); from < 900;) {
      const uint64_t to = std::min<uint64_t>(from + pick(90), 1000);
      account.Add(pick(1) == 0 ? IdleCause::kHostBound : IdleCause::kPause, from, to, pick(from));
      idle_ns += to - from;
      from = to + pick(40);
    }
    uint64_t known_ns = 0;
    uint64_t samples = 0;
    uint64_t weight = 0;
    for (const HostShare& share : account.Take()) {
      known_ns += share.time.ns;
      samples += share.time.samples;
      weight += share.time.weight;
      ASSERT_LE(share.time.measured_ns, share.time.ns);
    }
    ASSERT_LE(weight, samples * 4 * HostTime::kLook);
    if (whole) {
      EXPECT_EQ(known_ns, idle_ns) << round;
    } else {
      EXPECT_LE(known_ns, idle_ns) << round;
    }
    EXPECT_LE(samples, samples_.size());
  }
}

}  // namespace
}  // namespace gpuprobe::model
