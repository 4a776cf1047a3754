// The network between hosts in simulated jobs of 128 ranks: slow from the start, since a step, or on one
// host; and healthy networks that nobody may blame.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "collector/analysis/build_report.h"
#include "collector/simulate/scenarios.h"
#include "tests/collector/testing/simulated_run.h"

namespace gpuprobe::analysis {
namespace {

using simulate::TrainingJob;
using ::testing::HasSubstr;
using ::testing::Not;

// Four to sixteen hosts, and a network of which each host uses eight adapters.
TrainingJob Healthy(int ranks, int ranks_per_host) {
  TrainingJob job = simulate::FindScenario("healthy")->job;
  job.ranks = ranks;
  job.ranks_per_host = ranks_per_host;
  job.steps = 24;
  job.layers = 2;
  job.work = 4;
  job.network.link = simulate::Link{.alpha_ns = 3'000, .beta_bytes_per_ns = 300};
  return job;
}

Report ReportOf(const TrainingJob& training, uint64_t seed) {
  const auto job = testing::ModelOf(training, seed);
  return BuildReport(*job, {});
}

std::string Told(const Report& report) {
  std::string out;
  for (const Finding& f : report.findings)
    absl::StrAppend(&out, f.id, ": ", f.statement, "\n    ", f.evidence, "\n");
  return out;
}

TEST(NetworkOfRuns, SlowFromTheStartIsSlowAgainstTheReferenceDesign) {
  std::mt19937_64 random(3);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TrainingJob job = Healthy(128, seed % 2 == 0 ? 8 : 16);
    job.network.slowdown = std::uniform_real_distribution(12.0, 60.0)(random);
    const Report report = ReportOf(job, seed);
    ASSERT_EQ(report.findings.front().id, "slow-network") << job.network.slowdown << "\n" << Told(report);
    EXPECT_THAT(report.findings.front().evidence, HasSubstr("peak is unknown"));
    EXPECT_THAT(report.findings.front().advice, HasSubstr("--link-peak"));
  }
}

TEST(NetworkOfRuns, SlowSinceAStepIsSlowAgainstTheStepsBefore) {
  std::mt19937_64 random(5);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TrainingJob job = Healthy(128, 8);
    job.network.slowdown = std::uniform_real_distribution(8.0, 40.0)(random);
    job.network.from = std::uniform_real_distribution(0.25, 0.7)(random);
    const Report report = ReportOf(job, seed);
    ASSERT_EQ(report.findings.front().id, "slow-network") << job.network.slowdown << "\n" << Told(report);
    const auto& slow = report.communication.network->slow;
    ASSERT_TRUE(slow.has_value() && slow->since_step.has_value()) << Told(report);
    EXPECT_NEAR(static_cast<double>(*slow->since_step), job.network.from * job.steps, 2) << Told(report);
    EXPECT_TRUE(slow->hosts.empty());
  }
}

TEST(NetworkOfRuns, OneHostsSlowNetworkIsNamedWhereOtherCommunicatorsPassItBy) {
  std::mt19937_64 random(7);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TrainingJob job = Healthy(128, 8);
    job.tensor = 16;  // over two hosts, and the data groups over every other one
    job.network.host = static_cast<int>(random() % 16);
    job.network.slowdown = std::uniform_real_distribution(10.0, 40.0)(random);
    job.network.from = seed % 2 == 0 ? 0 : 0.4;
    const Report report = ReportOf(job, seed);
    ASSERT_EQ(report.findings.front().id, "slow-network") << job.network.host << "\n" << Told(report);
    EXPECT_THAT(report.findings.front().statement,
                HasSubstr(absl::StrCat("host simulated-", job.network.host)));
  }
}

TEST(NetworkOfRuns, HealthyNetworksOverSeveralHostsAreNotBlamed) {
  std::mt19937_64 random(11);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    TrainingJob job = Healthy(seed % 2 == 0 ? 128 : 64, seed % 3 == 0 ? 4 : 8);
    if (seed > 3) {
      job.layers = 4;
      job.pipeline = 4;
      job.microbatches = 8;
    }
    // A network with noise, half as fast as usual, or a little slower since a step.
    job.noise.calls = 0.1;
    job.network.link->beta_bytes_per_ns = std::uniform_real_distribution(150.0, 400.0)(random);
    job.network.slowdown = std::uniform_real_distribution(1.0, 1.5)(random);
    job.network.from = 0.5;
    job.network.host = seed % 2 == 0 ? -1 : 3;
    const Report report = ReportOf(job, seed);
    for (const Finding& f : report.findings) EXPECT_THAT(f.id, Not("slow-network")) << Told(report);
  }
}

// A job that sends much over a network as fast as can be is bound by communication; nothing is wrong with the
// network.
TEST(NetworkOfRuns, MuchTrafficOverAFastNetworkIsNotASlowNetwork) {
  TrainingJob job = Healthy(64, 8);
  job.gradients.layer_bytes *= 16;
  job.work = 1;
  const Report report = ReportOf(job, 1);
  EXPECT_EQ(report.findings.front().id, "communication-bound") << Told(report);
  EXPECT_THAT(report.findings.front().evidence, HasSubstr("is unknown"));
}

}  // namespace
}  // namespace gpuprobe::analysis
