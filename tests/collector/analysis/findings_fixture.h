// A report without any trouble, which tests of findings change, and what a rule concludes from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collector/analysis/finding_rules.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {

// Eight ranks, 50 steps of 10 ms, 9 ms of compute.
inline Report Steady() {
  Report r;
  r.steps.emplace();
  r.steps->count = 52;
  r.steps->warmup_count = 2;
  const auto fill = [](model::Summary& s, double mean) {
    s.count = 400;
    s.mean = mean;
    s.total = static_cast<uint64_t>(mean) * 400;
  };
  fill(r.steps->time_ns, 10e6);
  fill(r.steps->compute_ns, 9e6);
  for (int i = 0; i < 8; ++i) {
    RankReport& rank = r.ranks.emplace_back();
    rank.rank = i;
    rank.label = std::to_string(i);
    rank.step_means.steps = 50;
    rank.step_means.total_ns = 10e6;
    rank.step_means.compute_ns = 9e6;
  }
  r.conditions.hosts = {"n1"};
  r.conditions.duration_ns = 600'000'000;
  r.communication.step_ns = 10e6;
  r.communication.compute_ns = 9e6;
  return r;
}

inline std::vector<Finding> Of(std::string_view id, const Report& report) {
  std::vector<Finding> out;
  RuleOf(id).find(report, out);
  return out;
}

inline Straggler SlowCopies() {
  Straggler s;
  s.rank = 3;
  s.host = "n1";
  s.device = 3;
  s.cause = Straggler::Cause::kSlowCopies;
  s.cause_ns_per_step = 1.2e6;
  s.lost_ns_per_step = 1e6;
  s.throughput_loss = 0.1;
  s.caused.per_step_ns = 1e6;
  return s;
}

}  // namespace gpuprobe::analysis
