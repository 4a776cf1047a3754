#include "collector/analysis/comparison/comparison_trust.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/comparison/welch.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

std::string DevicesText(const Conditions& c) {
  std::map<std::string, int> devices;
  for (const DeviceCondition& d : c.devices) ++devices[d.name.empty() ? "unknown" : d.name];
  std::vector<std::string> parts;
  parts.reserve(devices.size());
  for (const auto& [name, count] : devices) parts.push_back(absl::StrCat(count, "x ", name));
  return absl::StrJoin(parts, ", ");
}

std::set<int> RanksOf(const RunSeries& run) {
  std::set<int> ranks;
  for (const RankSeries& rank : run.ranks) ranks.insert(rank.rank);
  return ranks;
}

// Share of A's kernel time per step in kernels that B also has.
double CommonShare(const RunSeries& a, const RunSeries& b) {
  double all = 0;
  double common = 0;
  for (const RankSeries& rank : a.ranks) {
    for (const auto& [name, series] : rank.kernels) {
      const double mean = SampleOf(ValuesOf(series)).mean;
      all += mean;
      common += b.kernel_calls.contains(name) ? mean : 0;
    }
  }
  return all > 0 ? common / all : 1;
}

double CallsOf(const RunSeries& run) {
  double calls = 0;
  for (const auto& [name, per_step] : run.kernel_calls) calls += per_step;
  return calls;
}

void SayWorkLimits(const Run& a, const Run& b, std::vector<std::string>& out) {
  constexpr double kOtherModel = 0.5;  // of the kernels' time
  constexpr double kOtherWork = 0.02;  // of the kernels of a step
  const double common = std::min(CommonShare(a.series, b.series), CommonShare(b.series, a.series));
  const double calls_a = CallsOf(a.series);
  const double calls_b = CallsOf(b.series);
  if (common < kOtherModel) {
    out.push_back(
        absl::StrFormat("A and B run different kernels (shared ones take %s of the time), so the model or a "
                        "library differs. Differences show what a step costs, not how the same work changed.",
                        Percent(common)));
  } else if (calls_a > 0 && std::abs(calls_b - calls_a) > kOtherWork * calls_a) {
    out.push_back(absl::StrFormat(
        "A step launches %.1f kernels per rank in A and %.1f in B, so the work per step changed.", calls_a,
        calls_b));
  }
}

}  // namespace

bool HaveSameRanks(const Run& a, const Run& b) {
  const std::set<int> of_a = RanksOf(a.series);
  return of_a == RanksOf(b.series) && !of_a.contains(-1) && of_a.size() == a.series.ranks.size() &&
         of_a.size() == b.series.ranks.size();
}

std::vector<std::string> LimitsOf(const Run& a, const Run& b) {
  std::vector<std::string> out;
  if (!a.report.steps.has_value() || !b.report.steps.has_value()) return out;
  if (!HaveSameRanks(a, b)) {
    const bool unknown = RanksOf(a.series).contains(-1) || RanksOf(b.series).contains(-1);
    out.push_back(unknown ? "Some processes have no rank number, so ranks are not compared individually."
                          : absl::StrFormat("Ranks are not compared individually: %d have steps in A, %d in "
                                            "B. All figures are means over each run's ranks.",
                                            a.series.ranks.size(), b.series.ranks.size()));
  }
  if (a.report.steps->source != b.report.steps->source) {
    out.push_back(absl::StrCat("Steps may not be comparable: their boundaries come from ",
                               report::Word(a.report.steps->source), " in A and from ",
                               report::Word(b.report.steps->source), " in B."));
  }
  SayWorkLimits(a, b, out);
  return out;
}

std::vector<ComparedCondition> ConditionsOf(const Conditions& a, const Conditions& b) {
  std::vector<ComparedCondition> out;
  const auto compare = [&](const char* what, const std::string& x, const std::string& y) {
    if (x != y) out.push_back({what, x.empty() ? "unknown" : x, y.empty() ? "unknown" : y});
  };
  compare("ranks", absl::StrCat(a.ranks_heard), absl::StrCat(b.ranks_heard));
  compare("hosts", absl::StrJoin(a.hosts, ", "), absl::StrJoin(b.hosts, ", "));
  compare("devices", DevicesText(a), DevicesText(b));
  compare("CUDA driver", a.cuda_driver, b.cuda_driver);
  compare("CUDA runtime", a.cuda_runtime, b.cuda_runtime);
  compare("CUPTI", a.cupti, b.cupti);
  compare("NCCL", a.nccl, b.nccl);
  compare("probe", a.probe_version, b.probe_version);
  compare("command", absl::StrJoin(a.command_line, " "), absl::StrJoin(b.command_line, " "));
  return out;
}

std::vector<std::string> DoubtsOf(const Report& report) {
  std::vector<std::string> doubts;
  const bool hung =
      std::any_of(report.hangs.begin(), report.hangs.end(), [](const Hang& hang) { return !hang.over; });
  if (hung && report.steps.has_value()) {
    doubts.push_back(absl::StrFormat("hung after %d steps", report.steps->count));
  } else if (hung) {
    doubts.emplace_back("hung");
  }
  const Trust& t = report.trust;
  if (t.lost_total > 0) {
    const double share = 1 - t.coverage.value_or(1);
    doubts.push_back(absl::StrCat("lost ", Count(t.lost_total), " records",
                                  share > 0 ? absl::StrFormat(" (%.2g %%)", share * 100) : ""));
  }
  if (t.batches_missing > 0) doubts.push_back(absl::StrCat("is missing ", t.batches_missing, " batches"));
  if (const size_t cut = t.cut_off.size(); cut > 0)
    doubts.push_back(cut == 1 ? "had 1 process cut off" : absl::StrCat("had ", cut, " processes cut off"));
  const Conditions& c = report.conditions;
  if (c.ranks_expected.has_value() && c.ranks_heard < *c.ranks_expected)
    doubts.push_back(absl::StrFormat("recorded only %d of %d ranks", c.ranks_heard, *c.ranks_expected));
  if (!t.damaged_logs.empty()) doubts.emplace_back("has damaged records");
  return doubts;
}

std::vector<ComparedFinding> FindingsOfOne(const Report& a, const Report& b) {
  std::vector<ComparedFinding> out;
  const auto add = [&](const Report& of, const Report& other, bool in_a) {
    std::set<std::string> known;
    for (const Finding& f : other.findings) known.insert(f.id);
    for (const Finding& f : of.findings) {
      if (RuleOf(f.id).topic != FindingTopic::kHealth && known.insert(f.id).second)
        out.push_back({f.id, in_a, f.severity, f.statement});
    }
  };
  add(a, b, true);
  add(b, a, false);
  return out;
}

}  // namespace gpuprobe::analysis
