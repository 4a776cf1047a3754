#include "injector/core/recording.h"

#include <gtest/gtest.h>

#include <string>

namespace gpuprobe::injector {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNow = 1'700'000'000 * kSecond;

TEST(Recording, KindsByName) {
  uint32_t kinds = 0;
  ASSERT_TRUE(ParseKinds("kernels,nccl", &kinds));
  EXPECT_EQ(kinds, kRecordKernels | kRecordNccl);
  ASSERT_TRUE(ParseKinds("kernels,copies,memsets,syncs,memory,nccl,nvtx,driver", &kinds));
  EXPECT_EQ(kinds, kRecordAll);
  for (const char* bad : {"", ",", "kernels,", ",kernels", "kernel", "kernels nccl", "kernels,,nccl"})
    EXPECT_FALSE(ParseKinds(bad, &kinds)) << bad;
}

TEST(Recording, RanksAsListAndRanges) {
  bool listed = false;
  uint32_t count = 0;
  ASSERT_TRUE(ParseRanks("0,4-7", 5, 0, &listed, &count));
  EXPECT_TRUE(listed);
  EXPECT_EQ(count, 5u);
  ASSERT_TRUE(ParseRanks("0,4-7", 3, 6, &listed, &count));
  EXPECT_FALSE(listed);
  EXPECT_EQ(count, 3u);  // ranks 6 and 7 do not exist in a job of six
  for (const char* bad :
       {"", "a", "1,", "2-1", "3,2", "0-4,4", "-1", "1-", "1-2-3", "1 ,2", "99999999999999999999"})
    EXPECT_FALSE(ParseRanks(bad, 0, 0, &listed, &count)) << bad;
}

Recording ChosenFrom(const char* const* environment, int32_t rank, Settings* settings) {
  settings->Read(environment);
  Identity identity;
  identity.rank = rank;
  identity.world_size = 4;
  return ChooseRecording(settings, identity, kNow);
}

TEST(Recording, WithoutSettingsEverythingIsRecorded) {
  Settings settings;
  const Recording all = ChosenFrom(nullptr, 0, &settings);
  EXPECT_TRUE(all.this_rank);
  EXPECT_EQ(all.kinds, kRecordAll);
  EXPECT_EQ(all.ranks, 0u);
  EXPECT_TRUE(all.Holds(1));
  EXPECT_TRUE(all.Holds(kNow + 1000000 * kSecond));
}

TEST(Recording, TheWindowHasABeginAndAnEnd) {
  Settings settings;
  const char* environment[] = {"GPUPROBE_START_AFTER_S=10", "GPUPROBE_STOP_AFTER_S=12", nullptr};
  const Recording window = ChosenFrom(environment, 0, &settings);
  EXPECT_EQ(settings.rejected(), 0);
  EXPECT_FALSE(window.Holds(kNow + 10 * kSecond - 1));
  EXPECT_TRUE(window.Holds(kNow + 10 * kSecond));
  EXPECT_TRUE(window.Holds(kNow + 12 * kSecond - 1));
  EXPECT_FALSE(window.Holds(kNow + 12 * kSecond));
  EXPECT_TRUE(window.HoldsLaunch(kNow + 9 * kSecond));
  EXPECT_FALSE(window.HoldsLaunch(kNow + 7 * kSecond));
  EXPECT_FALSE(window.HoldsLaunch(kNow + 12 * kSecond));
  EXPECT_TRUE(window.Overlaps(kNow, kNow + 20 * kSecond));
  EXPECT_FALSE(window.Overlaps(kNow, kNow + 9 * kSecond));
  EXPECT_FALSE(window.Overlaps(kNow + 13 * kSecond, kNow + 14 * kSecond));
}

TEST(Recording, OneEndOfTheWindowIsEnough) {
  Settings settings;
  const char* start[] = {"GPUPROBE_START_AFTER_S=10", nullptr};
  const Recording from = ChosenFrom(start, 0, &settings);
  EXPECT_FALSE(from.Holds(kNow));
  EXPECT_FALSE(from.Holds(1));
  EXPECT_TRUE(from.Holds(kNow + 1000000 * kSecond));
  const char* stop[] = {"GPUPROBE_STOP_AFTER_S=10", nullptr};
  const Recording until = ChosenFrom(stop, 0, &settings);
  EXPECT_TRUE(until.Holds(1));
  EXPECT_FALSE(until.Holds(kNow + 10 * kSecond));
}

TEST(Recording, RanksThatAreNotListedDoNotRecord) {
  Settings settings;
  const char* environment[] = {"GPUPROBE_RANKS=1-2", nullptr};
  EXPECT_FALSE(ChosenFrom(environment, 0, &settings).this_rank);
  EXPECT_TRUE(ChosenFrom(environment, 2, &settings).this_rank);
  EXPECT_EQ(ChosenFrom(environment, 2, &settings).ranks, 2u);
  EXPECT_TRUE(ChosenFrom(environment, -1, &settings).this_rank);
}

TEST(Recording, WhatCannotBeUsedIsRejectedAndEverythingRecorded) {
  Settings settings;
  const char* environment[] = {"GPUPROBE_KINDS=everything", "GPUPROBE_RANKS=3-1", "GPUPROBE_START_AFTER_S=5",
                               "GPUPROBE_STOP_AFTER_S=5", nullptr};
  const Recording chosen = ChosenFrom(environment, 0, &settings);
  EXPECT_EQ(settings.rejected(), 3);
  EXPECT_EQ(settings.rejected(0).index, SettingIndex("GPUPROBE_KINDS"));
  EXPECT_EQ(chosen.kinds, kRecordAll);
  EXPECT_TRUE(chosen.this_rank);
  EXPECT_FALSE(chosen.Holds(kNow + 4 * kSecond));
  EXPECT_TRUE(chosen.Holds(kNow + 6 * kSecond));
}

}  // namespace
}  // namespace gpuprobe::injector
