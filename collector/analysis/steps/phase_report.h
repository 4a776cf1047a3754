// The tree of phases as a flat list in the order in which they first began, one process's or all ranks'
// together.
#pragma once

#include <vector>

#include "collector/report/phases.h"

namespace gpuprobe::model {
class JobModel;
class ProcessModel;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

std::vector<PhaseReport> PhasesOf(const model::ProcessModel& process);
std::vector<PhaseReport> PhasesOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
