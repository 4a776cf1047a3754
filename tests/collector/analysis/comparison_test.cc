// Two runs whose differences are known.
#include "collector/analysis/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuprobe::analysis {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

model::Summary Of(uint64_t count, double mean, double std) {
  model::Summary s;
  s.count = count;
  s.mean = mean;
  s.std = std;
  s.total = static_cast<uint64_t>(mean * static_cast<double>(count));
  return s;
}

// Four ranks, 50 steps of 100 ms after 2 of warm-up.
Report Measured(double step_ms, double std_ms, double gemm_us) {
  Report r;
  r.ranks.resize(4);
  r.conditions.nccl = "2.28.9";
  r.steps.emplace();
  r.steps->count = 52;
  r.steps->warmup_count = 2;
  r.steps->time_ns = Of(200, step_ms * 1e6, std_ms * 1e6);
  r.steps->compute_ns = Of(200, step_ms * 0.8e6, std_ms * 1e6);
  KernelReport gemm;
  gemm.name = "gemm";
  gemm.time_ns = Of(uint64_t{52} * 4 * 100, gemm_us * 1e3, 100);
  KernelReport same;
  same.name = "same";
  same.time_ns = Of(uint64_t{52} * 4 * 10, 50e3, 100);
  r.top_kernels = {gemm, same};
  CollectiveReport c;
  c.op = "AllReduce";
  c.comm_ranks = 4;
  c.size_bytes = 1 << 20;
  c.time_ns = Of(uint64_t{52} * 4, 900e3, 1000);
  r.collectives = {c};
  return r;
}

TEST(Comparison, ARunAgainstItselfHasNoSignificantDifference) {
  const Report run = Measured(100, 1, 200);
  const Comparison c = Compare(run, run);
  EXPECT_THAT(c.verdict, StartsWith("No significant difference"));
  for (const ComparedPart& part : c.parts) EXPECT_FALSE(part.significant) << part.name;
  EXPECT_TRUE(c.kernels.empty());
  EXPECT_TRUE(c.collectives.empty());
  EXPECT_TRUE(c.conditions.empty());
}

TEST(Comparison, StepsCountNotStepsTimesRanks) {
  const Comparison c = Compare(Measured(100, 1, 200), Measured(101, 1, 200));
  EXPECT_EQ(c.parts.front().a.count, 50u);
}

TEST(Comparison, AFasterKernelIsNamedWithWhatItSavesAStep) {
  const Comparison c = Compare(Measured(100, 1, 200), Measured(95, 1, 150));
  EXPECT_THAT(c.verdict, StartsWith("B is faster: step time 100 ms -> 95.0 ms, -5.0 %"));
  EXPECT_THAT(c.verdict, HasSubstr("large"));
  EXPECT_TRUE(c.parts.front().significant);
  ASSERT_EQ(c.kernels.size(), 1u);
  EXPECT_EQ(c.kernels[0].name, "gemm");
  EXPECT_DOUBLE_EQ(c.kernels[0].calls_per_step_a, 400);
  // 100 calls of a rank in each step, 50 us less each.
  EXPECT_NEAR(c.kernels[0].change_ns_per_step, -100 * 50e3, 1);
}

TEST(Comparison, AChangeWithinTheSpreadIsNotSignificant) {
  const Comparison c = Compare(Measured(100, 10, 200), Measured(101, 10, 200));
  EXPECT_FALSE(c.parts.front().significant);
  EXPECT_THAT(c.verdict, StartsWith("No significant difference"));
}

TEST(Comparison, WhatOnlyOneRunHasIsAChange) {
  Report b = Measured(100, 1, 200);
  b.top_kernels.pop_back();
  const Comparison c = Compare(Measured(100, 1, 200), b);
  ASSERT_EQ(c.kernels.size(), 1u);
  EXPECT_EQ(c.kernels[0].name, "same");
  EXPECT_EQ(c.kernels[0].calls_per_step_b, 0);
}

TEST(Comparison, ConditionsThatDifferAreListed) {
  Report b = Measured(100, 1, 200);
  b.conditions.nccl = "2.27.3";
  const Comparison c = Compare(Measured(100, 1, 200), b);
  ASSERT_EQ(c.conditions.size(), 1u);
  EXPECT_EQ(c.conditions[0].what, "NCCL");
}

TEST(Comparison, WithoutStepsItSaysSo) {
  Report b = Measured(100, 1, 200);
  b.steps.reset();
  EXPECT_THAT(Compare(Measured(100, 1, 200), b).verdict, HasSubstr("cannot be compared"));
  Report few = Measured(100, 1, 200);
  few.steps->count = 3;
  EXPECT_THAT(Compare(Measured(100, 1, 200), few).verdict, HasSubstr("Too few steps"));
}

}  // namespace
}  // namespace gpuprobe::analysis
