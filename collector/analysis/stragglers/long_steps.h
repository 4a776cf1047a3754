// A few steps that take much longer than the others: which ones, and who was late in them.
//
// Separate from the stragglers, which are ranks that are late more often than by chance: an event in two of
// twenty steps may be anybody's bad luck, and is worth knowing all the same.
#pragma once

#include <optional>

#include "collector/report/long_steps.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// Absent where no step stands out, or so many do that they are not few.
std::optional<LongStepsReport> LongStepsOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
