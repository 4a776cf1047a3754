#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/job/late_steps.h"
#include "collector/records/device_clock.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

// In one topic, rules keep this order.
std::vector<FindingRule> AllRules() {
  std::vector<FindingRule> all;
  for (const auto& rules : {MemoryRules(), GpuHealthRules(), HangRules(), RankRules(), BalanceRules(),
                            DeviceRules(), CommunicationRules(), HostIdleRules(), StepRules(),
                            LongStepRules(), GrowthRules(), OptionRules(), CaptureRules()})
    all.insert(all.end(), rules.begin(), rules.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const FindingRule& a, const FindingRule& b) { return a.topic < b.topic; });
  return all;
}

// First errors and whatever cannot wait, then findings that cost time, then those merely worth knowing.
int Group(const Finding& f) {
  if (f.severity == Severity::kError || f.urgent) return 0;
  if (f.cost_ns_per_step.has_value()) return 1;
  return f.severity == Severity::kWarning ? 2 : 3;
}

}  // namespace

std::string condition::Share(double share) { return absl::StrFormat("%g %%", share * 100); }
std::string condition::Ratio(double ratio) { return absl::StrFormat("%gx", ratio); }
std::string condition::Seconds(uint64_t ns) { return absl::StrFormat("%g s", static_cast<double>(ns) / 1e9); }
std::string condition::Mib(uint64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

const char* TitleOf(FindingTopic topic) {
  switch (topic) {
    case FindingTopic::kMemory:
      return "Memory";
    case FindingTopic::kHangs:
      return "Hangs and deaths";
    case FindingTopic::kRanks:
      return "One rank holds up the others";
    case FindingTopic::kCommunication:
      return "Communication";
    case FindingTopic::kSteps:
      return "Work that does not reach the GPU";
    case FindingTopic::kHardware:
      return "Hardware and options";
    case FindingTopic::kRecording:
      return "How complete the recording is";
    case FindingTopic::kHealth:
      return "Nothing stands out";
  }
  return "";
}

std::span<const FindingRule> FindingRules() {
  static const std::vector<FindingRule>& rules = *new std::vector<FindingRule>(AllRules());
  return rules;
}

const FindingRule& RuleOf(std::string_view id) {
  const std::span<const FindingRule> rules = FindingRules();
  return *std::find_if(rules.begin(), rules.end(), [&](const FindingRule& rule) { return rule.id == id; });
}

std::string HoldsUpText() {
  namespace t = thresholds;
  using condition::Ratio;
  using condition::Share;
  return absl::StrFormat(
      "A rank holds up the others if it is late by %s of the step more often than by chance (p < %g), which "
      "lengthens the steps in which it is late by %s and the average step by %s. Where steps cannot be "
      "compared because records were lost: if each other rank waits %s of the step for it, with a robust "
      "z-score of %g or more across ranks and in %s of the steps (of two ranks, %s as long as it waits "
      "itself). A pipeline stage: if its neighbour waits %s of the step for it, and it takes %s of the step "
      "longer than the other stages.",
      Share(model::LateSteps::kLateShares[0]), t::kLatePValue, Share(t::kLateLongerStepShare),
      Share(t::kLateCostStepShare), Share(t::kWaitedStepShare), t::kRobustZScore, Share(t::kBlamedStepsShare),
      Ratio(t::kWaitedOfTwoRatio), Share(t::kWaitedStepShare), Share(t::kSlowStageStepShare));
}

uint64_t SteadySteps(const Report& report) {
  if (!report.steps.has_value()) return 0;
  return report.steps->count - std::min(report.steps->warmup_count, report.steps->count);
}

std::string ComparedSteps(const Report& report, uint64_t compared) {
  constexpr double kNearlyAll = 0.99;
  const uint64_t all = SteadySteps(report);
  if (static_cast<double>(compared) >= kNearlyAll * static_cast<double>(all))
    return absl::StrCat(Count(compared), " steps");
  return absl::StrCat(Count(compared), " steps that all ranks reported (", Count(all), " in all)");
}

std::vector<Finding> FindingsOf(const Report& report) {
  std::vector<Finding> findings;
  const bool stands_still = report.steps.has_value() && StandstillNs(report.hangs).has_value();
  for (const FindingRule& rule : FindingRules()) {
    rule.find(report, findings);
    for (Finding& f : findings) {
      if (!f.id.empty()) continue;
      f.id = rule.id;
      f.severity = rule.severity;
      if (stands_still && f.cost_ns_per_step.has_value())
        absl::StrAppend(&f.evidence, f.evidence.empty() ? "" : " ", "Measured in the ", SteadySteps(report),
                        " steps before the hang.");
    }
  }
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (Group(a) != Group(b)) return Group(a) < Group(b);
    if (a.passed != b.passed) return b.passed;
    return a.cost_ns_per_step.value_or(0) > b.cost_ns_per_step.value_or(0);
  });
  return findings;
}

}  // namespace gpuprobe::analysis
