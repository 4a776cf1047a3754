#include "collector/analysis/long_steps.h"

#include <algorithm>

#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

std::optional<LongStepsReport> LongStepsOf(const model::JobModel& job) {
  const model::LongSteps long_steps = job.comparison().late_steps().Summarize().long_steps;
  const model::Summary lengths = long_steps.lengths_ns().Summarize();
  if (lengths.count < thresholds::kLongStepsCompared) return std::nullopt;
  LongStepsReport report{.compared_steps = lengths.count, .usual_ns = lengths.p50, .steps = {}};
  const double least_ns = lengths.p50 + std::max(thresholds::kLongStepMedianShare * lengths.p50,
                                                 thresholds::kLongStepSpreadRatio *
                                                     (lengths.p50 - static_cast<double>(lengths.min)));
  double longer_ns = 0;
  for (const model::LongSteps::Step& step : long_steps.longest()) {
    const auto time_ns = static_cast<double>(step.total_ns);
    if (time_ns < least_ns) break;
    longer_ns += time_ns - lengths.p50;
    LongStepsReport::Step& out = report.steps.emplace_back();
    out.step = step.step;
    out.time_ns = time_ns;
    if (!step.late) continue;
    out.late_by_ns = static_cast<double>(step.late_by_ns);
    const v1::Identity& id = job.processes()[step.process]->identity();
    if (HasRank(id)) out.last_rank = id.rank();
  }
  const auto all = static_cast<double>(lengths.count);
  report.cost_ns = longer_ns / all;
  if (report.steps.empty() || report.steps.size() == model::LongSteps::kKept ||
      static_cast<double>(report.steps.size()) > thresholds::kLongStepsShare * all ||
      report.cost_ns < thresholds::kLongStepsCostStepShare * report.usual_ns)
    return std::nullopt;
  std::sort(report.steps.begin(), report.steps.end(),
            [](const LongStepsReport::Step& a, const LongStepsReport::Step& b) { return a.step < b.step; });
  return report;
}

}  // namespace gpuprobe::analysis
