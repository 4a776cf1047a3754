// The driver's slow functions over all ranks: how often they were called, for how long, and how much of that
// was before training was steady.
#pragma once

#include <string>
#include <vector>

#include "collector/report/work.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

struct Report;

std::vector<DriverCallReport> DriverCallsOf(const model::JobModel& job);

// What they cost before the steps and between them, if that is worth a sentence; else empty.
std::string DriverCallsSentence(const Report& report);

}  // namespace gpuprobe::analysis
