// The steps of one process, or of all, as report entries.
//
// Separate from the rest of the report because steps have their own rules: the warm-up is left out, phases
// may be inferred, and ranks are combined step by step.
#pragma once

#include <optional>
#include <string_view>

#include "collector/model/steps/step_record.h"
#include "collector/report/ranks.h"
#include "collector/report/steps.h"

namespace gpuprobe::model {
class JobModel;
struct Member;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

struct Report;

// Absent where no step was found.
std::optional<StepsReport> StepsOf(const model::Member& member, bool with_records);
std::optional<StepsReport> StepsOf(const model::JobModel& job);

BetweenRanks BetweenRanksOf(const std::vector<RankReport>& ranks);

}  // namespace gpuprobe::analysis
