// The truth of a simulation is itself held against something simpler: counting nanosecond by nanosecond, and
// what scenarios promise.
#include "tests/collector/simulate/truth.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "collector/simulate/scenarios.h"
#include "nlohmann/json.hpp"
#include "tests/collector/simulate/expected_findings.h"

namespace gpuprobe::simulate {
namespace {

using Parts = std::vector<std::pair<int64_t, int64_t>>;

std::array<bool, 64> Painted(const Parts& parts) {
  std::array<bool, 64> points{};
  for (const auto& [start, end] : parts) {
    for (int64_t t = start; t < end; ++t) points[static_cast<size_t>(t)] = true;
  }
  return points;
}

TEST(Intervals, AgreeWithCountingPoints) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    Parts sets[2];
    for (Parts& parts : sets) {
      for (uint64_t i = random.Next() % 6; i-- > 0;) {
        const auto start = static_cast<int64_t>(random.Next() % 60);
        parts.emplace_back(start, start + static_cast<int64_t>(random.Next() % 4));
      }
    }
    const auto a = Painted(sets[0]);
    const auto b = Painted(sets[1]);
    int both = 0;
    int either = 0;
    int first_only = 0;
    for (size_t t = 0; t < a.size(); ++t) {
      both += a[t] && b[t] ? 1 : 0;
      either += a[t] || b[t] ? 1 : 0;
      first_only += a[t] && !b[t] ? 1 : 0;
    }
    const Intervals x(sets[0]);
    const Intervals y(sets[1]);
    ASSERT_EQ(x.Union(y).Length(), either);
    ASSERT_EQ(x.Within(y).Length(), both);
    ASSERT_EQ(x.Without(y).Length(), first_only);
  }
}

nlohmann::json TruthOf(const char* name) {
  const TrainingJob& job = FindScenario(name)->job;
  Truth truth(job);
  Simulation simulation(job, {}, &truth);
  EXPECT_TRUE(simulation.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); }).ok());
  truth.Finish();
  return nlohmann::json::parse(truth.Json(name, simulation));
}

TEST(ExpectedFindings, AreThoseOfTheScenarios) {
  std::vector<std::string_view> scenarios;
  for (const Scenario& scenario : Scenarios()) scenarios.push_back(scenario.name);
  std::vector<std::string_view> expected;
  for (const Expected& each : AllExpected()) expected.push_back(each.scenario);
  EXPECT_EQ(expected, scenarios);
}

TEST(Truth, PartsOfEveryStepAddUpAndStepsTile) {
  for (const Scenario& scenario : Scenarios()) {
    if (scenario.job.ranks > 8) continue;
    SCOPED_TRACE(std::string(scenario.name));
    Truth truth(scenario.job);
    Simulation simulation(scenario.job, {}, &truth);
    ASSERT_TRUE(simulation.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); }).ok());
    truth.Finish();
    for (int rank = 0; rank < scenario.job.ranks; ++rank) {
      int64_t end_ns = -1;
      for (const Truth::Step& s : truth.steps(rank)) {
        const int64_t total = s.end_ns - s.start_ns;
        ASSERT_EQ(s.compute_ns + s.exposed_comm_ns + s.copy_ns + s.idle_ns, total);
        ASSERT_EQ(s.host_bound_ns + s.input_ns + s.sync_ns + s.launch_gap_ns, s.idle_ns);
        ASSERT_EQ(std::accumulate(s.phase_ns.begin(), s.phase_ns.end(), int64_t{0}), total);
        ASSERT_TRUE(end_ns < 0 || s.start_ns == end_ns);
        end_ns = s.end_ns;
      }
    }
  }
}

double OverlapEfficiency(const nlohmann::json& truth) {
  double sum = 0;
  int count = 0;
  for (const auto& rank : truth["by_rank"]) {
    for (const auto& step : rank["steps"]) {
      if (step["step"] < truth["warmup_steps"]) continue;
      sum += step["overlap_efficiency"].get<double>();
      ++count;
    }
  }
  return sum / count;
}

TEST(Truth, ScenariosOverlapAsTheirNamesSay) {
  EXPECT_NEAR(OverlapEfficiency(TruthOf("partial-overlap")), 0.79, 0.005);
  EXPECT_GT(OverlapEfficiency(TruthOf("perfect-overlap")), 0.98);
  EXPECT_LT(OverlapEfficiency(TruthOf("communication-bound")), 0.01);
}

TEST(Truth, BlamesTheSlowRank) {
  for (const char* name : {"straggler-kernels", "straggler-launches", "straggler-input", "straggler-work"}) {
    const nlohmann::json truth = TruthOf(name);
    int64_t all = 0;
    for (const auto& rank : truth["by_rank"]) all += rank["blame_ns"].get<int64_t>();
    EXPECT_GT(truth["by_rank"][truth["slow"]["rank"].get<size_t>()]["blame_ns"].get<double>(), 0.95 * all)
        << name;
  }
}

}  // namespace
}  // namespace gpuprobe::simulate
