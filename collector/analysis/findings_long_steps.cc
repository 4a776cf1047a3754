#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/report.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

using Step = LongStepsReport::Step;

constexpr size_t kNamed = 6;  // steps

bool IsStraggler(const Report& report, const Step& step) {
  return step.last_rank.has_value() &&
         std::any_of(report.stragglers.begin(), report.stragglers.end(),
                     [&](const Straggler& s) { return s.lost_ns_per_step > 0 && s.rank == *step.last_rank; });
}

// "8 (60.1 ms), 15 (59.9 ms) and 7 more"
std::string Names(const std::vector<Step>& steps) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(steps.size(), kNamed); ++i)
    names.push_back(absl::StrCat(steps[i].step, " (", Duration(steps[i].time_ns), ")"));
  if (steps.size() > kNamed)
    return absl::StrCat(absl::StrJoin(names, ", "), " and ", steps.size() - kNamed, " more");
  if (names.size() == 1) return names.front();
  const std::string last = names.back();
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

// Who was last in them; that it is the same one each time, chance may have given.
std::string Who(const std::vector<Step>& steps, size_t ranks) {
  const bool nobody =
      std::none_of(steps.begin(), steps.end(), [](const Step& s) { return s.last_rank.has_value(); });
  if (nobody) return "No rank was later than the others; the delay affected all ranks.";
  const bool one = std::all_of(steps.begin(), steps.end(),
                               [&](const Step& s) { return s.last_rank == steps.front().last_rank; });
  if (!one) {
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min(steps.size(), kNamed); ++i) {
      parts.push_back(steps[i].last_rank.has_value()
                          ? absl::StrCat("rank ", *steps[i].last_rank, " in step ", steps[i].step)
                          : absl::StrCat("none in step ", steps[i].step));
    }
    return absl::StrCat("Latest: ", absl::StrJoin(parts, ", "), ".");
  }
  double late_by_ns = 0;
  for (const Step& s : steps) late_by_ns += s.late_by_ns / static_cast<double>(steps.size());
  std::string text =
      absl::StrFormat("The other ranks waited for rank %d in %s, %s%s.", *steps.front().last_rank,
                      steps.size() == 1   ? "it"
                      : steps.size() == 2 ? "both"
                                          : "all of them",
                      Duration(late_by_ns), steps.size() == 1 ? "" : " on average");
  const double by_chance = std::pow(static_cast<double>(ranks), static_cast<double>(steps.size()) - 1);
  if (steps.size() == 1) {
    absl::StrAppend(&text, " One occurrence does not implicate a rank.");
  } else {
    absl::StrAppend(&text, " The same rank would be last by chance in ",
                    by_chance < 2000 ? absl::StrFormat("one of %.0f such runs", by_chance)
                                     : "fewer than one of 2,000 such runs",
                    ".");
  }
  return text;
}

}  // namespace

void LongSteps(const Report& report, std::vector<Finding>& out) {
  if (!report.long_steps.has_value()) return;
  const LongStepsReport& all = *report.long_steps;
  // A straggler's finding is not repeated here.
  std::vector<Step> steps;
  FindingSubject about;
  double longer_ns = 0;
  for (const Step& step : all.steps) {
    if (IsStraggler(report, step)) continue;
    steps.push_back(step);
    about.steps.push_back(step.step);
    longer_ns += step.time_ns - all.usual_ns;
  }
  if (steps.empty()) return;
  const double cost_ns = longer_ns / static_cast<double>(all.compared_steps);
  out.push_back(
      {.statement = absl::StrFormat(
           "%d of %d steps %s much longer than the typical %s: %s. %s the average step by %s (%s).",
           steps.size(), all.compared_steps, steps.size() == 1 ? "takes" : "take", Duration(all.usual_ns),
           Names(steps), steps.size() == 1 ? "It lengthens" : "They lengthen", Duration(cost_ns),
           Percent(cost_ns / all.usual_ns)),
       .evidence = Who(steps, report.ranks.size()),
       .advice = "Check what happens in these steps: checkpoints, evaluation, garbage collection, storage; "
                 "gpuprobe export prints their records. A longer run shows whether it is chance or a rank.",
       .cost_ns_per_step = cost_ns,
       .about = about});
}

}  // namespace gpuprobe::analysis
