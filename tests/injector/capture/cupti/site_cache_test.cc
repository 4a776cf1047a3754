#include "injector/capture/cupti/site_cache.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/injector/support/records.h"

namespace gpuprobe::injector {
namespace {

class SiteCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cache_.Init());
    ASSERT_TRUE(cache_.Claim());
    cache_.StartEpoch(1);
  }

  static CUpti_ActivityKernel10 Record(int32_t grid) {
    auto record = testing::Kernel("k", 1, 2, 3);
    record.gridX = grid;
    return record;
  }
  static const CUpti_ActivityKernel4& AsOldest(const CUpti_ActivityKernel10& record) {
    return reinterpret_cast<const CUpti_ActivityKernel4&>(record);
  }
  bool Guessed(const CUpti_ActivityKernel10& record) {
    return SiteCache::Matches(cache_.Guess(AsOldest(record)), AsOldest(record));
  }

  SiteCache cache_;
};

TEST_F(SiteCacheTest, ASiteIsFoundAgainByItsRecords) {
  const auto record = Record(1);
  EXPECT_FALSE(Guessed(record));
  CachedSite& site = cache_.FindOrAdd(AsOldest(record));
  EXPECT_EQ(site.epoch, 0);
  site.epoch = 1;
  site.site = 17;
  EXPECT_TRUE(Guessed(record));
  EXPECT_EQ(cache_.Guess(AsOldest(record)).site, 17u);
  EXPECT_EQ(&cache_.FindOrAdd(AsOldest(record)), &site);
  EXPECT_FALSE(Guessed(Record(2)));
}

TEST_F(SiteCacheTest, MoreSitesThanItHoldsAreForgottenTogetherAndMissNothing) {
  for (int round = 0; round < 2; ++round) {
    for (int32_t grid = 1; grid <= 20000; ++grid) {
      const auto record = Record(grid);
      CachedSite& site = cache_.FindOrAdd(AsOldest(record));
      if (site.epoch == 0) site.site = static_cast<uint32_t>(grid);
      site.epoch = 1;
      ASSERT_EQ(site.site, static_cast<uint32_t>(grid));
    }
  }
}

TEST_F(SiteCacheTest, OneThreadAtATimeHasIt) {
  EXPECT_FALSE(cache_.Claim());
  cache_.Release();
  EXPECT_TRUE(cache_.Claim());
  SiteCache without_memory;
  EXPECT_FALSE(without_memory.Claim());
}

// Sixteen bits of the epoch are kept: a site of an epoch with the same bits, long ago, must not be there.
TEST_F(SiteCacheTest, SitesDoNotOutliveTheirEpochsBits) {
  const auto record = Record(1);
  cache_.FindOrAdd(AsOldest(record)).epoch = 1;
  for (uint32_t epoch = 2; epoch <= 65537; ++epoch) cache_.StartEpoch(epoch);
  EXPECT_FALSE(Guessed(record));
}

// A record without a name and in no shape is not what an empty place of the table holds.
TEST_F(SiteCacheTest, ARecordOfZerosIsNotKnownBeforeItWasAdded) {
  const CUpti_ActivityKernel10 record{};
  EXPECT_EQ(cache_.Guess(AsOldest(record)).epoch, 0);
  EXPECT_EQ(cache_.FindOrAdd(AsOldest(record)).epoch, 0);
}

}  // namespace
}  // namespace gpuprobe::injector
