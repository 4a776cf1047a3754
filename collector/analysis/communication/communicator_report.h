// The communicators of a job: who made them of what, how large they are, what ran on them, what became of
// them.
//
// Separate from collective_report.h, which is about the time of the calls. Pure.
#pragma once

#include <vector>

#include "collector/report/communicators.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// In the order in which they were made.
std::vector<CommunicatorReport> CommunicatorsOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
