#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collector/analysis/finding_rules.h"
#include "collector/report/report.h"
#include "tests/collector/testing/units.h"

namespace gpuprobe::analysis {
namespace {

using gpuprobe::testing::kMiB;

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
  RuleOf("pool-footprint").find(report, findings);
  return findings;
}

TEST(PoolFootprintFinding, APoolThatHoldsFarMoreThanItGivesOut) {
  const auto findings = FindingsOf(1024 * kMiB, 2048 * kMiB);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].statement,
            "Rank 4's memory pool 2 on device 0 reserved 2.00 GiB for 1.00 GiB of allocations.");
}

TEST(PoolFootprintFinding, NeitherASmallShareNorAFewGranulesAreWorthSaying) {
  EXPECT_TRUE(FindingsOf(1024 * kMiB, 1500 * kMiB).empty());
  EXPECT_TRUE(FindingsOf(10 * kMiB, 200 * kMiB).empty());
  EXPECT_TRUE(FindingsOf(0, 2048 * kMiB).empty()) << "its allocations were not seen";
}

// A program that catches the error has freed its tensors by the end.
TEST(OutOfMemoryFinding, SaysWhatTensorsHadWhenMemoryWasRefused) {
  Report report;
  RankReport& rank = report.ranks.emplace_back();
  rank.rank = 4;
  rank.memory[v1::MEMORY_KIND_DEVICE].failed = 1;
  RefusalReport& refusal = rank.out_of_memory.emplace_back();
  refusal.memory = v1::MEMORY_KIND_DEVICE;
  refusal.live = {{v1::MEMORY_KIND_DEVICE, 2048 * kMiB}};
  PytorchMemoryReport& pytorch = rank.pytorch_memory.emplace_back();
  pytorch.allocated_bytes = 100 * kMiB;
  pytorch.reserved_bytes = 2048 * kMiB;
  pytorch.refusals = 1;
  pytorch.last_refused_allocated_bytes = 1792 * kMiB;
  pytorch.last_refused_reserved_bytes = 2048 * kMiB;
  std::vector<Finding> findings;
  RuleOf("out-of-memory").find(report, findings);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].evidence.find("PyTorch reserved 2.00 GiB for 1.75 GiB of tensors."),
            std::string::npos)
      << findings[0].evidence;
  EXPECT_EQ(findings[0].advice.find("expandable_segments"), std::string::npos);
}

TEST(OutOfMemoryFinding, IsNotSaidOfAProgramThatSurvivedRefusalsAndEndedWell) {
  Report report;
  RankReport& rank = report.ranks.emplace_back();
  rank.rank = 4;
  rank.memory[v1::MEMORY_KIND_DEVICE].failed = 40;
  for (const uint64_t time_ns : {100, 200}) {
    RefusalReport& refusal = rank.out_of_memory.emplace_back();
    refusal.memory = v1::MEMORY_KIND_DEVICE;
    refusal.time_ns = time_ns;
  }
  rank.last_step_launch_ns = 150;
  rank.end = {.kind = Halt::Kind::kEnded, .exit_code = 0};
  const auto found = [&](const char* id) {
    std::vector<Finding> findings;
    RuleOf(id).find(report, findings);
    return findings;
  };
  EXPECT_TRUE(found("out-of-memory").empty());
  ASSERT_EQ(found("allocation-failed").size(), 1u);
  EXPECT_NE(found("allocation-failed")[0].evidence.find("40 requests failed."), std::string::npos);
  EXPECT_NE(found("allocation-failed")[0].evidence.find("The program went on"), std::string::npos);
  rank.end->exit_code = 1;
  EXPECT_EQ(found("out-of-memory").size(), 1u) << "it failed";
  rank.end.reset();
  EXPECT_EQ(found("out-of-memory").size(), 1u) << "nobody saw how it ended";
  rank.end = {.kind = Halt::Kind::kEnded, .exit_code = 0};
  rank.last_step_launch_ns = 50;
  EXPECT_EQ(found("out-of-memory").size(), 1u) << "it caught the error, and made no step any more";
}

// What fills the device within a day comes before what costs time.
TEST(MemoryLeakFinding, SaysWhenTheDeviceIsFullAndIsUrgentWithinADay) {
  Report report;
  report.communication.step_ns = 10e6;
  report.ranks.emplace_back();
  report.ranks[0].rank = 4;
  MemoryTrend trend;
  trend.growth_bytes_per_step = static_cast<double>(kMiB);
  trend.steps_until_full = 72'000;
  report.ranks[0].device_memory.emplace_back().trend = trend;
  const auto leak = [&] {
    std::vector<Finding> findings;
    RuleOf("memory-leak").find(report, findings);
    return findings.at(0);
  };
  EXPECT_EQ(leak().statement,
            "Rank 4 holds 1.00 MiB more memory after every step; at that rate its GPU is full in 72,000 "
            "steps (12 min).");
  EXPECT_TRUE(leak().urgent);
  report.communication.step_ns = 2e9;
  EXPECT_NE(leak().statement.find("(40.0 h)."), std::string::npos) << leak().statement;
  EXPECT_FALSE(leak().urgent);
}

}  // namespace
}  // namespace gpuprobe::analysis
