// The steps of one process, or of all, as report entries.
//
// Separate from the rest of the report because steps have their own rules: the warm-up is left out, phases
// may be inferred, and ranks are combined step by step.
#pragma once

#include <optional>
#include <string_view>

#include "collector/analysis/report/steps.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {
class JobModel;
class ProcessModel;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

struct Report;

// Absent where no step was found.
std::optional<StepsReport> StepsOf(const model::ProcessModel& process, bool with_records);
std::optional<StepsReport> StepsOf(const model::JobModel& job);

// Standard deviation of the ranks' means of a part of the step; absent with less than two ranks that have
// steps.
std::optional<double> BetweenRanks(const Report& report, double StepMeans::*part);

std::string_view PhaseName(model::StepPhase phase);

}  // namespace gpuprobe::analysis
