// The account of the probe's memory, and who is refused.
#include "injector/base/memory_account.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "injector/base/flat_map.h"
#include "injector/base/mapping.h"

namespace gpuprobe::injector {
namespace {

constexpr size_t kMib = size_t{1} << 20;

TEST(MemoryAccount, OrdinaryUsesLeaveAnEighthToNeededOnes) {
  SetMemoryLimit(64 * kMib);
  EXPECT_TRUE(ChargeMemory(56 * kMib, MemoryUse::kOrdinary));
  EXPECT_FALSE(ChargeMemory(1, MemoryUse::kOrdinary));
  EXPECT_TRUE(ChargeMemory(8 * kMib, MemoryUse::kNeeded));
  EXPECT_FALSE(ChargeMemory(1, MemoryUse::kNeeded));
  ReleaseMemory(9 * kMib);
  EXPECT_TRUE(ChargeMemory(1 * kMib, MemoryUse::kOrdinary));
  EXPECT_EQ(HeldMemory(), 56 * kMib);
  EXPECT_EQ(PeakMemory(), 64 * kMib);
}

TEST(MemoryAccount, WhatIsMoreThanAllMemoryIsRefused) {
  SetMemoryLimit(64 * kMib);
  EXPECT_TRUE(ChargeMemory(1, MemoryUse::kOrdinary));
  EXPECT_FALSE(ChargeMemory(SIZE_MAX, MemoryUse::kNeeded));
  EXPECT_EQ(HeldMemory(), 1u);
}

TEST(MemoryAccount, MappingsAreChargedAndReleased) {
  SetMemoryLimit(16 * kMib);
  {
    Mapping whole;
    ASSERT_TRUE(whole.Map(4 * kMib));
    EXPECT_EQ(HeldMemory(), 4 * kMib);
    Mapping more;
    EXPECT_FALSE(more.Map(12 * kMib));
    EXPECT_EQ(HeldMemory(), 4 * kMib);
    whole.Swap(more);
  }
  EXPECT_EQ(HeldMemory(), 0u);
}

TEST(MemoryAccount, ReservedAddressesCountAsFarAsTheyAreUsed) {
  SetMemoryLimit(8 * kMib);
  Mapping mapping;
  ASSERT_TRUE(mapping.Reserve(64 * kMib));
  EXPECT_EQ(HeldMemory(), 0u);
  EXPECT_TRUE(mapping.Use(1));
  const size_t step = HeldMemory();
  EXPECT_TRUE(mapping.Use(step));
  EXPECT_EQ(HeldMemory(), step);
  EXPECT_TRUE(mapping.Use(5 * kMib));
  EXPECT_FALSE(mapping.Use(9 * kMib)) << "beyond the limit";
  mapping.Reset();
  EXPECT_EQ(HeldMemory(), 0u);
  ASSERT_TRUE(mapping.Reserve(2 * kMib));
  EXPECT_FALSE(mapping.Use(3 * kMib)) << "beyond the mapping";
}

TEST(MemoryAccount, AShareHasABoundOfItsOwn) {
  SetMemoryLimit(64 * kMib);
  MemoryShare share;
  share.SetLimit(10 * kMib);
  EXPECT_TRUE(share.Charge(10 * kMib));
  EXPECT_FALSE(share.Charge(1));
  share.Release(2 * kMib);
  ASSERT_TRUE(ChargeMemory(48 * kMib, MemoryUse::kOrdinary));
  EXPECT_FALSE(share.Charge(1)) << "others have the rest";
  EXPECT_EQ(share.held(), 8 * kMib);
}

TEST(MemoryAccount, ATableThatMayNotGrowKeepsItsEntries) {
  SetMemoryLimit(kMib);
  FlatMap<uint64_t> map(1 << 20);
  size_t entries = 0;
  while (map.Insert(entries, entries) != nullptr) ++entries;
  EXPECT_GT(entries, 1000u);
  EXPECT_LE(PeakMemory(), kMib);
  for (uint64_t i = 0; i < entries; ++i) ASSERT_EQ(*map.Find(i), i);
}

TEST(MemoryAccount, ThreadsNeverTakeMoreThanThereIs) {
  SetMemoryLimit(64 * kMib);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 20'000; ++round) {
        if (ChargeMemory(9 * kMib, MemoryUse::kNeeded)) ReleaseMemory(9 * kMib);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(HeldMemory(), 0u);
  EXPECT_LE(PeakMemory(), 63 * kMib);
}

}  // namespace
}  // namespace gpuprobe::injector
