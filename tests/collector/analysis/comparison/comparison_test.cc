// Two runs whose differences are known.
#include "collector/analysis/comparison/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <random>

#include "absl/strings/str_cat.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

// In a test, Run is the one of GoogleTest.
using Recorded = Run;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr size_t kSteps = 50;
constexpr int kRanks = 4;

// Normal, with exactly this mean and standard deviation, so that what is expected does not hang on luck.
Series Of(double mean, double std, uint64_t seed, size_t count = kSteps) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Series s(count);
  for (double& v : s) v = normal(engine);
  const Sample drawn = SampleOf(s);
  for (double& v : s) v = mean + (v - drawn.mean) / drawn.std * std;
  return s;
}

struct Job {
  double step_ms = 100;
  double std_ms = 1;
  double gemm_us = 200;      // of a call, 100 a step
  double gemm_std_us = 0.1;  // of a call, from step to step
  double transfer_us = 400;
  uint64_t seed = 1;
};

Recorded Measured(const Job& job) {
  Recorded run;
  Report& r = run.report;
  r.ranks.resize(kRanks);
  r.conditions.nccl = "2.28.9";
  r.steps.emplace();
  r.steps->count = kSteps + 2;
  r.steps->warmup_count = 2;
  for (int rank = 0; rank < kRanks; ++rank) {
    RankSeries& s = run.series.ranks.emplace_back();
    s.rank = rank;
    const uint64_t seed = job.seed * 100 + static_cast<uint64_t>(rank) * 7;
    for (Series& part : s.parts) part = Series(kSteps, 0);
    // Ranks wait for each other: a step is as long on all of them.
    s.parts[static_cast<size_t>(model::StepPart::kTotal)] =
        Of(job.step_ms * 1e6, job.std_ms * 1e6, job.seed * 100);
    s.parts[static_cast<size_t>(model::StepPart::kCompute)] =
        Of(job.step_ms * 0.8e6, job.std_ms * 1e6, seed + 1);
    s.kernels["gemm"] = Of(job.gemm_us * 1e5, job.gemm_std_us * 1e5, seed + 2);
    s.kernels["same"] = Of(500e3, 10e3, seed + 3);
  }
  run.series.kernel_calls = {{"gemm", 100}, {"same", 10}};
  CollectiveSeries& c = run.series.collectives.emplace_back();
  c.name = "AllReduce 1.00 MiB, 4 ranks";
  c.members = {0, 1, 2, 3};
  c.calls_per_step = 1;
  c.wait_ns = 500e3;
  c.transfer_ns = Of(job.transfer_us * 1e3, 8e3, job.seed * 100 + 50);
  return run;
}

TEST(Comparison, ARunAgainstItselfHasNoSignificantDifference) {
  const Recorded run = Measured({});
  const Comparison c = Compare(run, run);
  EXPECT_THAT(c.verdict, StartsWith("No significant difference"));
  for (const ComparedPart& part : c.parts) {
    EXPECT_FALSE(part.significant) << PartName(part.part);
    EXPECT_EQ(part.test->high - part.test->low, 0) << "pairs that are equal leave no doubt";
  }
  EXPECT_THAT(c.changes, IsEmpty());
  EXPECT_THAT(c.ranks, IsEmpty());
  EXPECT_THAT(c.kernels, IsEmpty());
  EXPECT_THAT(c.collectives, IsEmpty());
  EXPECT_THAT(c.conditions, IsEmpty());
}

TEST(Comparison, WhatRanksAlwaysDifferByIsNoNoise) {
  Recorded a = Measured({.seed = 1});
  Recorded b = Measured({.step_ms = 101, .seed = 2});
  for (Recorded* run : {&a, &b}) {
    for (double& v : run->series.ranks[3].parts[static_cast<size_t>(model::StepPart::kCompute)]) v *= 3;
  }
  const Comparison c = Compare(a, b);
  const ComparedPart& compute = c.parts[1];
  EXPECT_LT((compute.test->high - compute.test->low) / compute.a.mean, 0.01);
  EXPECT_TRUE(compute.significant);
}

TEST(Comparison, OneRankOfFourIsNamedAndTheOthersAreNot) {
  Recorded b = Measured({.seed = 2});
  for (double& v : b.series.ranks[2].parts[static_cast<size_t>(model::StepPart::kCompute)]) v *= 1.05;
  const Comparison c = Compare(Measured({.seed = 1}), b);
  ASSERT_FALSE(c.changes.empty());
  EXPECT_THAT(c.changes.front().ranks, ElementsAre(2));
  EXPECT_THAT(c.changes.front().statement, HasSubstr("Compute time on rank 2 is 5.0 % longer"));
  ASSERT_EQ(c.ranks.size(), 1u);
}

TEST(Comparison, ARankThatChangedMoreThanAllOthersIsNamedBesideThem) {
  Recorded b = Measured({.seed = 2});
  for (RankSeries& rank : b.series.ranks) {
    for (double& v : rank.parts[static_cast<size_t>(model::StepPart::kCompute)])
      v *= rank.rank == 1 ? 1.1 : 1.03;
  }
  const Comparison c = Compare(Measured({.seed = 1}), b);
  ASSERT_EQ(c.changes.size(), 2u);
  EXPECT_EQ(c.changes[0].subject, Change::Subject::kRank);
  EXPECT_THAT(c.changes[0].ranks, ElementsAre(1));
  EXPECT_THAT(c.changes[0].statement, HasSubstr("relative to the other ranks"));
  EXPECT_EQ(c.changes[1].subject, Change::Subject::kAllRanks);
}

TEST(Comparison, ASmallDifferenceIsNotCalledLargeHoweverRegularStepsAre) {
  const Comparison c =
      Compare(Measured({.std_ms = 0.01, .seed = 1}), Measured({.step_ms = 99.96, .std_ms = 0.01, .seed = 2}));
  EXPECT_TRUE(c.parts.front().significant);
  EXPECT_THAT(c.verdict, StartsWith("B is faster, but only by 0.04 %: step time 100.00 ms -> 99.96 ms"));
  EXPECT_THAT(c.verdict, Not(HasSubstr("large")));
}

TEST(Comparison, AHangAndWhatWasLostAreSaidBeforeTheNumbers) {
  Recorded run_a = Measured({.seed = 1});
  Recorded run_b = Measured({.step_ms = 95, .seed = 2});
  Report& a = run_a.report;
  Report& b = run_b.report;
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
  const Comparison c = Compare(run_a, run_b);
  EXPECT_THAT(c.verdict, StartsWith("A lost 1,234 records (25 %). B hung after 52 steps, had 4 processes cut "
                                    "off, recorded only 4 of 8 ranks. From the records: B is faster"));
  ASSERT_EQ(c.findings.size(), 2u);
  EXPECT_EQ(c.findings[0].id, "records-lost");
  EXPECT_TRUE(c.findings[0].in_a);
  EXPECT_EQ(c.findings[1].id, "hang-missing-rank");
  EXPECT_FALSE(c.findings[1].in_a);
  // What was a mismatch and ended all the same is no hang.
  b.hangs.front().over = true;
  EXPECT_THAT(Compare(run_a, run_b).doubts_b.front(), StartsWith("had 4 processes"));
}

TEST(Comparison, StepsOfDifferentSourcesAreSaidToBe) {
  Recorded run_a = Measured({.seed = 1});
  Recorded run_b = Measured({.seed = 2});
  run_a.report.steps->source = model::StepSource::kMarker;
  run_b.report.steps->source = model::StepSource::kKernels;
  EXPECT_THAT(Compare(run_a, run_b).limits,
              ::testing::Contains(::testing::AllOf(HasSubstr("boundaries come from marker in A"),
                                                   HasSubstr("from kernels in B"))));
}

TEST(Comparison, StepsCountNotStepsTimesRanks) {
  const Comparison c = Compare(Measured({.seed = 1}), Measured({.step_ms = 101, .seed = 2}));
  EXPECT_EQ(c.parts.front().a.count, kSteps);
}

TEST(Comparison, AFasterKernelIsNamedWithWhatItSavesAStep) {
  const Comparison c = Compare(Measured({.seed = 1}), Measured({.step_ms = 95, .gemm_us = 150, .seed = 2}));
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
  EXPECT_LT(c.kernels[0].low_ns, c.kernels[0].change_ns);
  ASSERT_FALSE(c.changes.empty());
  EXPECT_THAT(c.changes.front().evidence, HasSubstr("gemm 20.0 ms -> 15.0 ms per step"));
}

TEST(Comparison, AChangeWithinTheSpreadIsNotSignificant) {
  const Comparison c =
      Compare(Measured({.std_ms = 10, .seed = 1}), Measured({.step_ms = 101, .std_ms = 10, .seed = 2}));
  EXPECT_FALSE(c.parts.front().significant);
  EXPECT_THAT(c.verdict, StartsWith("No significant difference"));
}

TEST(Comparison, StepsThatDriftAreFewIndependentOnes) {
  Recorded a = Measured({.seed = 1});
  Recorded b = Measured({.seed = 2});
  // Both get slower and faster by the same 5 %, a period and a half in A, half a period later in B.
  for (auto [run, phase] : {std::pair(&a, 0.0), std::pair(&b, 1.5)}) {
    for (RankSeries& rank : run->series.ranks) {
      Series& total = rank.parts[static_cast<size_t>(model::StepPart::kTotal)];
      for (size_t i = 0; i < total.size(); ++i)
        total[i] += 5e6 * std::sin(phase + static_cast<double>(i) / 16);
    }
  }
  const Comparison c = Compare(a, b);
  EXPECT_FALSE(c.parts.front().significant) << c.verdict;
  EXPECT_THAT(c.limits, ::testing::Contains(HasSubstr("drift")));
}

TEST(Comparison, WhatOnlyOneRunHasIsAChange) {
  Recorded b = Measured({.seed = 2});
  for (RankSeries& rank : b.series.ranks) rank.kernels.erase("same");
  b.series.kernel_calls.erase("same");
  const Comparison c = Compare(Measured({.seed = 1}), b);
  ASSERT_EQ(c.kernels.size(), 1u);
  EXPECT_EQ(c.kernels[0].name, "same");
  EXPECT_EQ(c.kernels[0].b.calls, 0);
}

TEST(Comparison, AKernelThatDiffersByChanceIsNotListed) {
  // 3 % more in the mean, at a spread of 20 % from step to step on each of four ranks: 1.5 standard errors.
  EXPECT_TRUE(Compare(Measured({.gemm_std_us = 40, .seed = 1}),
                      Measured({.gemm_us = 206, .gemm_std_us = 40, .seed = 2}))
                  .kernels.empty());
  EXPECT_EQ(Compare(Measured({.gemm_std_us = 2, .seed = 1}),
                    Measured({.gemm_us = 206, .gemm_std_us = 2, .seed = 2}))
                .kernels.size(),
            1u);
}

TEST(Comparison, ManyKernelsAreManyChancesToErr) {
  // Each by itself would be beyond chance at 5 %.
  Recorded a = Measured({.seed = 1});
  Recorded b = Measured({.seed = 2});
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("kernel_", i);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      a.series.ranks[rank].kernels[name] = Of(1e6, 240e3, 1000 + 10 * i + rank);
      b.series.ranks[rank].kernels[name] = Of(1.055e6, 240e3, 5000 + 10 * i + rank);
    }
    a.series.kernel_calls[name] = b.series.kernel_calls[name] = 10;
  }
  EXPECT_TRUE(Compare(a, b).kernels.empty());
}

TEST(Comparison, ACollectiveIsComparedByItsTransferWhateverRanksWaited) {
  Recorded b = Measured({.seed = 2});
  b.series.collectives[0].wait_ns = 5'500e3;
  EXPECT_TRUE(Compare(Measured({.seed = 1}), b).collectives.empty());
  b = Measured({.transfer_us = 600, .seed = 2});
  b.series.collectives[0].wait_ns = 5'500e3;
  const Comparison c = Compare(Measured({.seed = 1}), b);
  ASSERT_EQ(c.collectives.size(), 1u);
  EXPECT_NEAR(c.collectives[0].change_ns, 200e3, 1);
  EXPECT_NEAR(*c.collectives[0].b.wait_ns, 5'500e3, 1);
}

TEST(Comparison, ACollectiveIsListedWhenItIsCalledMoreOften) {
  Recorded b = Measured({.seed = 2});
  b.series.collectives[0].calls_per_step = 3;
  ASSERT_EQ(Compare(Measured({.seed = 1}), b).collectives.size(), 1u);
  // Once more in fifty steps may be chance.
  b.series.collectives[0].calls_per_step = 1.02;
  EXPECT_TRUE(Compare(Measured({.seed = 1}), b).collectives.empty());
}

TEST(Comparison, OneCommunicatorOfSeveralIsNamedByItsRanks) {
  const auto groups = [](double last_us, uint64_t seed) {
    Recorded run = Measured({.seed = seed});
    run.series.collectives.clear();
    for (int group = 0; group < 4; ++group) {
      CollectiveSeries& c = run.series.collectives.emplace_back();
      c.name = "AllReduce 1.00 MiB, 2 ranks";
      c.members = {2 * group, 2 * group + 1};
      c.calls_per_step = 1;
      c.transfer_ns = Of(group == 3 ? last_us * 1e3 : 400e3, 8e3, seed * 10 + static_cast<uint64_t>(group));
    }
    return run;
  };
  const Comparison c = Compare(groups(400, 1), groups(500, 2));
  ASSERT_EQ(c.collectives.size(), 1u);
  EXPECT_THAT(c.collectives[0].members, ElementsAre(6, 7));
}

TEST(Comparison, ConditionsThatDifferAreListed) {
  Recorded b = Measured({.seed = 2});
  b.report.conditions.nccl = "2.27.3";
  const Comparison c = Compare(Measured({.seed = 1}), b);
  ASSERT_EQ(c.conditions.size(), 1u);
  EXPECT_EQ(c.conditions[0].what, "NCCL");
}

TEST(Comparison, WithoutStepsItSaysSo) {
  Recorded b = Measured({.seed = 2});
  b.report.steps.reset();
  EXPECT_THAT(Compare(Measured({.seed = 1}), b).verdict, HasSubstr("cannot be compared"));
  Recorded few = Measured({.seed = 2});
  for (RankSeries& rank : few.series.ranks) {
    for (Series& part : rank.parts) part.resize(1);
  }
  EXPECT_THAT(Compare(Measured({.seed = 1}), few).verdict, HasSubstr("Too few steps"));
}

}  // namespace
}  // namespace gpuprobe::analysis
