#include <gtest/gtest.h>

#include <vector>

#include "collector/analysis/finding_rules.h"

namespace gpuprobe::analysis {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::vector<Finding> FindingsOf(uint64_t used_bytes, uint64_t reserved_bytes) {
  Report report;
  report.ranks.emplace_back();
  report.ranks[0].rank = 4;
  report.ranks[0].pools.push_back(
      {.pool = 1, .device = 0, .used_high_water_bytes = 100 * kMiB, .reserved_high_water_bytes = 128 * kMiB});
  report.ranks[0].pools.push_back({.pool = 2,
                                   .device = 0,
                                   .used_high_water_bytes = used_bytes,
                                   .reserved_high_water_bytes = reserved_bytes});
  std::vector<Finding> findings;
  PoolFootprint(report, findings);
  return findings;
}

TEST(PoolFootprintFinding, APoolThatHoldsFarMoreThanItGivesOut) {
  const auto findings = FindingsOf(1024 * kMiB, 2048 * kMiB);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].statement,
            "Rank 4's memory pool 2 on device 0 took 2.0 GiB of the device for 1.0 GiB of allocations.");
}

TEST(PoolFootprintFinding, NeitherASmallShareNorAFewGranulesAreWorthSaying) {
  EXPECT_TRUE(FindingsOf(1024 * kMiB, 1500 * kMiB).empty());
  EXPECT_TRUE(FindingsOf(10 * kMiB, 200 * kMiB).empty());
  EXPECT_TRUE(FindingsOf(0, 2048 * kMiB).empty()) << "its allocations were not seen";
}

}  // namespace
}  // namespace gpuprobe::analysis
