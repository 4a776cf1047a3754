// What hosts of simulated jobs do while GPUs are idle for them, against the code that the simulation had them
// run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collector/analysis/build_report.h"
#include "collector/analysis/host_time.h"
#include "collector/simulate/scenarios.h"
#include "tests/collector/testing/simulated_run.h"

namespace gpuprobe::analysis {
namespace {

using simulate::TrainingJob;
using ::testing::HasSubstr;

const Finding& FindingOf(const Report& report, const std::string& id) {
  for (const Finding& f : report.findings) {
    if (f.id == id) return f;
  }
  ADD_FAILURE() << id << " was not found; first: " << report.findings.front().id;
  return report.findings.front();
}

// Every cause's time is accounted for.
void ExpectSums(const std::vector<HostTimeReport>& all, const StepsReport& steps) {
  for (const HostTimeReport& time : all) {
    double ns = time.not_sampled_ns_per_step + time.other_ns_per_step;
    uint64_t samples = 0;
    for (const HostPlaceReport& place : time.places) {
      ns += place.ns_per_step;
      samples += place.samples;
    }
    EXPECT_NEAR(ns, time.ns_per_step, 1e-3);
    EXPECT_LE(samples, time.samples);
    if (time.cause == model::IdleCause::kPause) {
      EXPECT_NEAR(time.ns_per_step, steps.pause_ns.mean, 1e-3);
    }
  }
}

TEST(HostTimeOfRuns, WhatEveryRankDoesBetweenStepsIsNamedAndIsNoInput) {
  const auto job = testing::ModelOf(simulate::FindScenario("host-pause")->job, 1);
  const Report report = BuildReport(*job, {});
  EXPECT_EQ(report.findings.front().id, "host-pause");
  EXPECT_THAT(report.findings.front().statement,
              HasSubstr("it empties PyTorch's cache: cuMemFree, called from empty_cache "
                        "(torch/cuda/memory.py:224), called from train (train.py:14) (100 % of"));
  // A copy to the GPU comes next in every step, so that without samples it is taken for input.
  EXPECT_EQ(report.steps->input_ns.max, 0);
  const HostTimeReport* pause = HostTimeOf(report.host_time, model::IdleCause::kPause);
  ASSERT_NE(pause, nullptr);
  EXPECT_GT(pause->samples, 8u * 30);
  EXPECT_GT(pause->ns_per_step, 5e6);
  EXPECT_LT(pause->not_sampled_ns_per_step, 0.05 * pause->ns_per_step);
  ExpectSums(report.host_time, *report.steps);
  for (const RankReport& rank : report.ranks) ExpectSums(rank.host_time, *rank.steps);
}

TEST(HostTimeOfRuns, LinesOfAFunctionAreOnePlaceWhereNoneOfThemHasHalfOfTheTime) {
  const auto job = testing::ModelOf(simulate::FindScenario("python-metric")->job, 1);
  const Report report = BuildReport(*job, {});
  EXPECT_EQ(report.findings.front().id, "host-pause");
  EXPECT_THAT(report.findings.front().statement,
              ::testing::ContainsRegex(
                  "it is in confusion \\(metrics.py:([789]|10)\\) and 3 other lines of it \\(100 %"));
  const HostTimeReport* pause = HostTimeOf(report.host_time, model::IdleCause::kPause);
  ASSERT_NE(pause, nullptr);
  ASSERT_EQ(pause->places.size(), 1u);
  EXPECT_EQ(pause->most().other_lines, 3u);
  EXPECT_EQ(pause->most().samples, pause->samples);
  ExpectSums(report.host_time, *report.steps);
}

TEST(HostTimeOfRuns, ACheckpointOfOneRankIsNamedWithItsFileAndItsLine) {
  const auto job = testing::ModelOf(simulate::FindScenario("checkpoint")->job, 1);
  const Report report = BuildReport(*job, {});
  const Finding& late = FindingOf(report, "straggler-intermittent");
  EXPECT_THAT(late.statement, HasSubstr("rank 0 every 10 steps"));
  EXPECT_THAT(late.evidence,
              HasSubstr("it writes a checkpoint: write of /checkpoints/step.pt, called from _save "
                        "(torch/serialization.py:1214), called from save_checkpoint (train.py:88)"));
  EXPECT_THAT(late.advice, HasSubstr("async_save"));
  ExpectSums(report.host_time, *report.steps);
  for (const RankReport& rank : report.ranks) {
    ExpectSums(rank.host_time, *rank.steps);
    EXPECT_EQ(rank.host_time.empty(), rank.rank != 0);
  }
}

TEST(HostTimeOfRuns, AJobThatAllRanksInterruptHasLongStepsWithTheirCause) {
  TrainingJob training = simulate::FindScenario("checkpoint")->job;
  training.host.pause.rank = -1;
  const auto job = testing::ModelOf(training, 2);
  const Report report = BuildReport(*job, {});
  const Finding& steps = FindingOf(report, "long-steps");
  EXPECT_THAT(steps.evidence, HasSubstr("the host writes a checkpoint: write of /checkpoints/step.pt"));
}

TEST(HostTimeOfRuns, WithoutSamplesNothingIsClaimed) {
  TrainingJob training = simulate::FindScenario("host-pause")->job;
  training.host.pause.code = simulate::HostCode::kNotSampled;
  const auto job = testing::ModelOf(training, 1);
  const Report report = BuildReport(*job, {});
  EXPECT_TRUE(report.host_time.empty());
  EXPECT_EQ(report.findings.front().id, "input-bound");
}

}  // namespace
}  // namespace gpuprobe::analysis
