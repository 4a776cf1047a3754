// Two runs whose differences are known.
#include "collector/analysis/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "absl/strings/str_cat.h"

namespace gpuprobe::analysis {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
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
  gemm.steady = {.steps = 50, .calls = 100, .time_ns = gemm_us * 1e5, .std_ns = 10e3};
  KernelReport same;
  same.name = "same";
  same.time_ns = Of(uint64_t{52} * 4 * 10, 50e3, 100);
  same.steady = {.steps = 50, .calls = 10, .time_ns = 500e3, .std_ns = 10e3};
  r.top_kernels = {gemm, same};
  CollectiveReport c;
  c.op = "AllReduce";
  c.comm_ranks = 4;
  c.size_bytes = 1 << 20;
  c.time_ns = Of(uint64_t{52} * 4, 900e3, 1000);
  c.calls = uint64_t{52} * 4;
  c.steady = {.steps = 50,
              .compared = 200,
              .plans_per_step = 1,
              .transfer_ns = 400e3,
              .transfer_std_ns = 8e3,
              .wait_ns = 500e3};
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

TEST(Comparison, ASmallDifferenceIsNotCalledLargeHoweverRegularStepsAre) {
  const Comparison c = Compare(Measured(100, 0.01, 200), Measured(99.96, 0.01, 200));
  EXPECT_TRUE(c.parts.front().significant);
  EXPECT_THAT(c.verdict,
              StartsWith("B is faster beyond chance, but only by 0.04 %: step time 100.00 ms -> 99.96 ms"));
  EXPECT_THAT(c.verdict, Not(HasSubstr("large")));
}

TEST(Comparison, AHangAndWhatWasLostAreSaidBeforeTheNumbers) {
  Report a = Measured(100, 1, 200);
  Report b = Measured(95, 1, 200);
  a.trust.lost_total = 1234;
  a.trust.coverage = 0.75;
  b.hangs.emplace_back();
  b.trust.cut_off.resize(4);
  b.conditions.ranks_heard = 4;
  b.conditions.ranks_expected = 8;
  const auto find = [](Report& report, std::initializer_list<const char*> ids) {
    for (const char* id : ids) report.findings.emplace_back().id = id;
  };
  find(a, {"records-lost", "imbalance"});
  find(b, {"hang-missing-rank", "hang-missing-rank", "imbalance", "healthy"});
  const Comparison c = Compare(a, b);
  EXPECT_THAT(c.verdict,
              StartsWith("A lost 1,234 records (25 %). B hung after 52 steps, had 4 processes cut "
                         "off, was heard of on 4 of 8 ranks only. Of what was recorded: B is faster"));
  ASSERT_EQ(c.findings.size(), 2u);
  EXPECT_EQ(c.findings[0].id, "records-lost");
  EXPECT_TRUE(c.findings[0].in_a);
  EXPECT_EQ(c.findings[1].id, "hang-missing-rank");
  EXPECT_FALSE(c.findings[1].in_a);
  // What was a mismatch and ended all the same is no hang.
  b.hangs.front().over = true;
  EXPECT_THAT(Compare(a, b).doubts_b.front(), StartsWith("had 4 processes"));
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
  EXPECT_DOUBLE_EQ(c.kernels[0].a.calls, 100);
  EXPECT_NEAR(c.kernels[0].a.mean_ns, 200e3, 1);
  EXPECT_NEAR(c.kernels[0].b.mean_ns, 150e3, 1);
  // 100 calls of a rank in each step, 50 us less each.
  EXPECT_NEAR(c.kernels[0].change_ns, -100 * 50e3, 1);
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
  EXPECT_EQ(c.kernels[0].b.calls, 0);
}

TEST(Comparison, AKernelThatDiffersByChanceIsNotListed) {
  // 3 % more in the mean, at a spread of 10 % from step to step: 1.5 standard errors.
  Report a = Measured(100, 1, 200);
  Report b = Measured(100, 1, 206);
  for (Report* r : {&a, &b}) r->top_kernels[0].steady->std_ns = 2e6;
  EXPECT_TRUE(Compare(a, b).kernels.empty());
  a.top_kernels[0].steady->std_ns = b.top_kernels[0].steady->std_ns = 0.2e6;
  EXPECT_EQ(Compare(a, b).kernels.size(), 1u);
}

TEST(Comparison, ManyKernelsAreManyChancesToErr) {
  // Each by itself would be beyond chance at 5 %.
  Report a = Measured(100, 1, 200);
  Report b = Measured(100, 1, 200);
  for (int i = 0; i < 20; ++i) {
    KernelReport k;
    k.name = absl::StrCat("kernel_", i);
    k.steady = {.steps = 50, .calls = 10, .time_ns = 1e6, .std_ns = 120e3};
    a.top_kernels.push_back(k);
    k.steady->time_ns = 1.055e6;
    b.top_kernels.push_back(k);
  }
  EXPECT_TRUE(Compare(a, b).kernels.empty());
}

TEST(Comparison, ACollectiveIsComparedByItsTransferWhateverRanksWaited) {
  Report b = Measured(100, 1, 200);
  b.collectives[0].time_ns = Of(uint64_t{52} * 4, 5900e3, 1000);
  b.collectives[0].steady.wait_ns = 5'500e3;
  EXPECT_TRUE(Compare(Measured(100, 1, 200), b).collectives.empty());
  b.collectives[0].steady.transfer_ns = 600e3;
  const Comparison c = Compare(Measured(100, 1, 200), b);
  ASSERT_EQ(c.collectives.size(), 1u);
  EXPECT_NEAR(c.collectives[0].change_ns, 200e3, 1);
  EXPECT_NEAR(*c.collectives[0].b.wait_ns, 5'500e3, 1);
}

TEST(Comparison, ACollectiveIsListedWhenItIsCalledMoreOften) {
  Report b = Measured(100, 1, 200);
  b.collectives[0].steady.plans_per_step = 3;
  b.collectives[0].steady.compared = 600;
  ASSERT_EQ(Compare(Measured(100, 1, 200), b).collectives.size(), 1u);
  // Once more in fifty steps may be chance.
  b.collectives[0].steady.plans_per_step = 1.02;
  EXPECT_TRUE(Compare(Measured(100, 1, 200), b).collectives.empty());
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
