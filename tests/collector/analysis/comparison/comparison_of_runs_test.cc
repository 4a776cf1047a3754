// `gpuprobe diff` on simulated jobs: equal runs, and runs in which one thing is changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "collector/analysis/build_report.h"
#include "collector/analysis/comparison/comparison.h"
#include "collector/simulate/scenarios.h"
#include "tests/collector/testing/simulated_run.h"

namespace gpuprobe::analysis {
namespace {

// In a test, Run is the one of GoogleTest.
using Recorded = Run;

using simulate::TrainingJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kSteps = 61;  // one of them warm-up

TrainingJob Healthy() {
  TrainingJob job = simulate::FindScenario("healthy")->job;
  job.steps = kSteps;
  return job;
}

Recorded RunOf(const TrainingJob& training, uint64_t seed) {
  const auto job = testing::ModelOf(training, seed);
  ReportInput input;
  input.all_kernels = true;
  Recorded run{.report = BuildReport(*job, input), .series = {}};
  run.series = SeriesOf(*job, run.report);
  return run;
}

// Differences that are beyond chance, named or not.
size_t DifferencesIn(const Comparison& c) {
  size_t parts = 0;
  for (const ComparedPart& part : c.parts) parts += part.significant ? 1 : 0;
  return parts + c.ranks.size() + c.kernels.size() + c.collectives.size() + c.changes.size();
}

const Change* ChangeOf(const Comparison& c, Change::Subject subject, const std::string& part) {
  for (const Change& change : c.changes) {
    const std::string name = change.part.has_value() ? PartName(*change.part) : change.name;
    if (change.subject == subject && name == part) return &change;
  }
  return nullptr;
}

std::string Told(const Comparison& c) {
  std::string out = c.verdict;
  for (const Change& change : c.changes) absl::StrAppend(&out, "\n", change.statement, " ", change.evidence);
  return out;
}

// Forty pairs at a level of 5 %: if it is used up, two false ones are to be expected, and more than five come
// in 1.4 % of such suites.
TEST(ComparisonOfRuns, FortyPairsOfEqualRunsDifferByChanceOnly) {
  constexpr uint64_t kRuns = 40;
  constexpr int kMostFalse = 5;
  int false_pairs = 0;
  const Recorded first = RunOf(Healthy(), 1000);
  Recorded a = first;
  for (uint64_t i = 1; i <= kRuns; ++i) {
    Recorded b = i < kRuns ? RunOf(Healthy(), 1000 + i) : first;
    const Comparison c = Compare(a, b);
    EXPECT_GT(c.comparisons, 50u);
    EXPECT_THAT(c.limits, IsEmpty());
    EXPECT_THAT(c.changes, IsEmpty()) << i << ": " << Told(c);
    false_pairs += DifferencesIn(c) > 0 ? 1 : 0;
    a = std::move(b);
  }
  EXPECT_LE(false_pairs, kMostFalse);
}

TEST(ComparisonOfRuns, EqualRunsOfOtherKindsDifferByChanceOnly) {
  for (const char* scenario :
       {"sequence-lengths", "imbalance", "fsdp", "pipeline-hosts", "grid", "launch-bound"}) {
    TrainingJob job = simulate::FindScenario(scenario)->job;
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const Comparison c = Compare(RunOf(job, seed), RunOf(job, 100 + seed));
      EXPECT_THAT(c.changes, IsEmpty()) << scenario << " " << seed << ": " << Told(c);
    }
  }
}

TEST(ComparisonOfRuns, OnePercentMoreComputeIsFoundOnAllRanks) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    TrainingJob slower = Healthy();
    slower.work *= 1.01;
    const Comparison c = Compare(RunOf(Healthy(), seed), RunOf(slower, 50 + seed));
    const Change* compute = ChangeOf(c, Change::Subject::kAllRanks, "compute");
    ASSERT_NE(compute, nullptr) << Told(c);
    EXPECT_NEAR(compute->change_ns / c.parts[1].a.mean, 0.01, 0.002);
    EXPECT_LT(compute->low_ns, compute->high_ns);
    EXPECT_EQ(ChangeOf(c, Change::Subject::kRank, "compute"), nullptr) << Told(c);
    EXPECT_THAT(c.verdict, HasSubstr("B is slower"));
  }
}

TEST(ComparisonOfRuns, FivePercentOfOneRankAreFoundAndTheRankIsNamed) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    TrainingJob slower = Healthy();
    slower.slow.by = simulate::SlowBy::kKernels;
    slower.slow.rank = static_cast<int>(seed * 5 % 8);
    slower.slow.factor = 1.05;
    const Comparison c = Compare(RunOf(Healthy(), seed), RunOf(slower, 50 + seed));
    ASSERT_FALSE(c.changes.empty());
    EXPECT_EQ(c.changes.front().subject, Change::Subject::kRank) << Told(c);
    EXPECT_EQ(c.changes.front().part, model::StepPart::kCompute);
    EXPECT_THAT(c.changes.front().ranks, ElementsAre(slower.slow.rank)) << Told(c);
    EXPECT_NEAR(c.changes.front().change_ns / c.parts[1].a.mean, 0.05, 0.005);
    EXPECT_EQ(ChangeOf(c, Change::Subject::kAllRanks, "compute"), nullptr) << Told(c);
  }
}

TEST(ComparisonOfRuns, ARankThatWasSlowAlreadyAndBecameSlowerIsNamed) {
  TrainingJob before = Healthy();
  before.slow.by = simulate::SlowBy::kKernels;
  before.slow.rank = 6;
  before.slow.factor = 1.3;
  TrainingJob after = before;
  after.slow.factor = 1.4;
  const Comparison c = Compare(RunOf(before, 3), RunOf(after, 4));
  const Change* compute = ChangeOf(c, Change::Subject::kRank, "compute");
  ASSERT_NE(compute, nullptr) << Told(c);
  EXPECT_THAT(compute->ranks, ElementsAre(6));
  EXPECT_NE(ChangeOf(c, Change::Subject::kWaiting, "exposed comm"), nullptr) << Told(c);
}

TEST(ComparisonOfRuns, AFaultThatMovedIsALessAndAMore) {
  TrainingJob before = Healthy();
  before.slow.by = simulate::SlowBy::kKernels;
  before.slow.rank = 2;
  before.slow.factor = 1.2;
  TrainingJob after = before;
  after.slow.rank = 5;
  const Comparison c = Compare(RunOf(before, 3), RunOf(after, 4));
  ASSERT_GE(c.changes.size(), 2u) << Told(c);
  std::map<int, double> changes;
  for (const Change& change : c.changes) {
    if (change.subject == Change::Subject::kRank && change.ranks.size() == 1)
      changes[change.ranks.front()] = change.change_ns;
  }
  EXPECT_LT(changes[2], 0) << Told(c);
  EXPECT_GT(changes[5], 0) << Told(c);
}

TEST(ComparisonOfRuns, OnePercentSlowerTransfersAreFoundInTheCollective) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    TrainingJob slower = Healthy();
    slower.link.beta_bytes_per_ns /= 1.015;
    slower.link.alpha_ns = static_cast<int64_t>(static_cast<double>(slower.link.alpha_ns) * 1.015);
    TrainingJob busy = Healthy();
    busy.gradients.layer_bytes *= 4;
    slower.gradients.layer_bytes *= 4;
    const Comparison c = Compare(RunOf(busy, seed), RunOf(slower, 70 + seed));
    const Change* transfers = ChangeOf(c, Change::Subject::kCollective, "AllReduce 25.0 MiB, 8 ranks");
    ASSERT_NE(transfers, nullptr) << Told(c);
    EXPECT_GT(transfers->change_ns, 0);
    EXPECT_EQ(ChangeOf(c, Change::Subject::kAllRanks, "compute"), nullptr) << Told(c);
  }
}

TEST(ComparisonOfRuns, StepsOfTheSameDataArePairedSoThatAPercentIsFound) {
  TrainingJob before = simulate::FindScenario("sequence-lengths")->job;
  TrainingJob after = before;
  after.work *= 1.01;
  const Comparison c = Compare(RunOf(before, 1), RunOf(after, 2));
  EXPECT_TRUE(c.paired);
  EXPECT_NE(ChangeOf(c, Change::Subject::kAllRanks, "compute"), nullptr) << Told(c);
}

TEST(ComparisonOfRuns, RunsOfDifferentLengthAndRanksSayWhatCannotBeCompared) {
  TrainingJob longer = Healthy();
  longer.steps = 150;
  const Comparison c = Compare(RunOf(Healthy(), 1), RunOf(longer, 2));
  EXPECT_THAT(c.limits, IsEmpty());
  EXPECT_EQ(c.block_steps, 2u);
  EXPECT_EQ(DifferencesIn(c), 0u) << Told(c);
  TrainingJob fewer = Healthy();
  fewer.ranks = 4;
  const Comparison ranks = Compare(RunOf(Healthy(), 1), RunOf(fewer, 2));
  EXPECT_THAT(ranks.limits,
              ElementsAre(HasSubstr("Ranks are not compared individually: 8 have steps in A, 4 in B")));
  EXPECT_THAT(ranks.ranks, IsEmpty());
  TrainingJob other = Healthy();
  other.layers = 8;
  const Comparison model = Compare(RunOf(Healthy(), 1), RunOf(other, 2));
  EXPECT_THAT(model.limits, ElementsAre(HasSubstr("the work per step changed")));
}

}  // namespace
}  // namespace gpuprobe::analysis
