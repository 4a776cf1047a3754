#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "collector/analysis/finding_rules.h"

namespace gpuprobe::analysis {
namespace {

constexpr FindingRule kRules[] = {
    {"allocation-failed", Severity::kError, "an allocation was refused for want of memory", AllocationFailed},
    {"straggler-slow-gpu", Severity::kWarning,
     "a rank's kernels take at least 1.10 x as long as the same kernels elsewhere, with a robust z-score of "
     "3.5 over the ranks",
     StragglerSlowGpu},
    {"rank-cut-off", Severity::kWarning, "a process ended without saying goodbye", RankCutOff},
    {"records-lost", Severity::kWarning, "a record was lost", RecordsLost},
    {"ranks-missing", Severity::kInfo, "fewer ranks were heard than the job has", RanksMissing},
    {"capture-incomplete", Severity::kWarning,
     "GPU times are missing, the last flush was cut short, or what was recorded is damaged",
     CaptureIncomplete},
    {"clock-stepped", Severity::kWarning, "the host's clock was stepped by 1 ms or more", ClockStepped},
    {"detail-dropped", Severity::kInfo, "single records were dropped to hold --keep", DetailDropped},
};

// What is wrong comes before what costs time, and that before what is merely worth knowing.
int Group(const Finding& f) {
  if (f.severity == Severity::kError) return 0;
  if (f.cost_ns_per_step.has_value()) return 1;
  return f.severity == Severity::kWarning ? 2 : 3;
}

}  // namespace

std::span<const FindingRule> FindingRules() { return kRules; }

std::vector<Finding> FindingsOf(const Report& report) {
  std::vector<Finding> findings;
  for (const FindingRule& rule : kRules) {
    const size_t before = findings.size();
    rule.find(report, findings);
    for (size_t i = before; i < findings.size(); ++i) {
      findings[i].id = rule.id;
      findings[i].severity = rule.severity;
    }
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (Group(a) != Group(b)) return Group(a) < Group(b);
    return a.cost_ns_per_step.value_or(0) > b.cost_ns_per_step.value_or(0);
  });
  return findings;
}

}  // namespace gpuprobe::analysis
