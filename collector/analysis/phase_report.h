// The tree of phases as a flat list in the order in which they first began, one process's or all ranks'
// together.
#pragma once

#include <vector>

#include "collector/analysis/report.h"
#include "collector/model/job_model.h"

namespace gpuprobe::analysis {

std::vector<PhaseReport> PhasesOf(const model::ProcessModel& process);
std::vector<PhaseReport> PhasesOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
