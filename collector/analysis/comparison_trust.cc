#include "collector/analysis/comparison_trust.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {

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
  if (t.batches_missing > 0) doubts.push_back(absl::StrCat("misses ", t.batches_missing, " batches"));
  if (const size_t cut = t.cut_off.size(); cut > 0)
    doubts.push_back(cut == 1 ? "had 1 process cut off" : absl::StrCat("had ", cut, " processes cut off"));
  const Conditions& c = report.conditions;
  if (c.ranks_expected.has_value() && c.ranks_heard < *c.ranks_expected)
    doubts.push_back(
        absl::StrFormat("was heard of on %d of %d ranks only", c.ranks_heard, *c.ranks_expected));
  if (!t.damaged_logs.empty()) doubts.emplace_back("has damaged records");
  return doubts;
}

std::vector<ComparedFinding> FindingsOfOne(const Report& a, const Report& b) {
  std::vector<ComparedFinding> out;
  const auto add = [&](const Report& of, const Report& other, bool in_a) {
    std::set<std::string> known{"healthy"};
    for (const Finding& f : other.findings) known.insert(f.id);
    for (const Finding& f : of.findings) {
      if (known.insert(f.id).second) out.push_back({f.id, in_a, f.severity, f.statement});
    }
  };
  add(a, b, true);
  add(b, a, false);
  return out;
}

}  // namespace gpuprobe::analysis
