#include "collector/analysis/stragglers/long_steps.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/analysis/host_time.h"
#include "collector/analysis/names.h"
#include "collector/analysis/stragglers/step_pattern.h"
#include "collector/analysis/thresholds.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

std::optional<LongStepsReport> LongStepsOf(const model::JobModel& job) {
  const model::LongSteps long_steps = job.comparison().late_steps().Summarize().long_steps;
  const model::Summary lengths = long_steps.lengths_ns().Summarize();
  if (lengths.count < thresholds::kLongStepsCompared) return std::nullopt;
  LongStepsReport report{.compared_steps = lengths.count,
                         .usual_ns = lengths.p50,
                         .steps = {},
                         .content = {},
                         .host_places = {},
                         .pattern = {}};
  std::array<double, model::LongSteps::kParts> usual{};
  for (size_t i = 0; i < usual.size(); ++i) usual[i] = long_steps.parts_ns()[i].Summarize().p50;
  std::array<double, model::LongSteps::kParts> more{};
  const double least_ns = lengths.p50 + std::max(thresholds::kLongStepMedianShare * lengths.p50,
                                                 thresholds::kLongStepSpreadRatio *
                                                     (lengths.p50 - static_cast<double>(lengths.min)));
  double longer_ns = 0;
  std::vector<PacedStep> paced;
  const double longest_ns = static_cast<double>(lengths.max);
  for (const model::LongSteps::Step& step : long_steps.longest()) {
    const auto time_ns = static_cast<double>(step.total_ns);
    if (time_ns < least_ns ||
        (!report.steps.empty() &&
         time_ns - lengths.p50 < thresholds::kLongStepOfLongestShare * (longest_ns - lengths.p50)))
      break;
    longer_ns += time_ns - lengths.p50;
    for (size_t i = 0; i < usual.size(); ++i) more[i] += static_cast<double>(step.parts[i]) - usual[i];
    LongStepsReport::Step& out = report.steps.emplace_back();
    out.step = step.step;
    out.time_ns = time_ns;
    // Where ranks end their steps in different places, a rank is late for what it did in its last one.
    const bool before = step.late && 2 * step.paced_ns < step.late_by_ns;
    paced.push_back(
        {.step = step.step, .member = step.late ? step.member : step.paced_by, .with_previous = before});
    if (!step.late) continue;
    out.late_by_ns = static_cast<double>(step.late_by_ns);
    const model::Member& last = job.members()[step.member];
    const v1::Identity& id = last.process->identity();
    if (HasRank(id)) out.last_rank = id.rank();
    out.last_gpu = last.device();
  }
  const auto all = static_cast<double>(lengths.count);
  report.cost_ns = longer_ns / all;
  if (report.steps.empty() || report.steps.size() == model::LongSteps::kKept ||
      static_cast<double>(report.steps.size()) > thresholds::kLongStepsShare * all ||
      report.cost_ns < thresholds::kLongStepsCostStepShare * report.usual_ns)
    return std::nullopt;
  std::sort(report.steps.begin(), report.steps.end(),
            [](const LongStepsReport::Step& a, const LongStepsReport::Step& b) { return a.step < b.step; });
  for (double& part_ns : more) part_ns = std::max(part_ns / static_cast<double>(report.steps.size()), 0.0);
  using Part = model::LongSteps;
  report.content = {.compute_ns = more[Part::kCompute],
                    .exposed_comm_ns = more[Part::kExposedComm],
                    .copy_ns = more[Part::kCopy],
                    .host_bound_ns = more[Part::kHostBound],
                    .input_ns = more[Part::kInput],
                    .sync_ns = more[Part::kSync],
                    .memory_ns = more[Part::kMemory],
                    .pause_ns = more[Part::kPause],
                    .after_copy_ns = more[Part::kAfterCopy]};
  std::vector<uint64_t> numbers;
  for (const LongStepsReport::Step& step : report.steps) numbers.push_back(step.step);
  report.pattern = StepPatternOfMost(numbers);
  report.host_places = HostPlacesIn(job, paced);
  return report;
}

}  // namespace gpuprobe::analysis
