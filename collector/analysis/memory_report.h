// The memory part of a rank's report: high-water marks with what made them, and refused allocations.
//
// Separate because it is about one process's ledger and the names of its ranges only.
#pragma once

#include "collector/analysis/report.h"
#include "collector/model/process_model.h"

namespace gpuprobe::analysis {

void FillMemory(const model::ProcessModel& process, RankReport& rank);

}  // namespace gpuprobe::analysis
