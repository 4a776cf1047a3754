// The cost of profiling to the program: our code on its threads, and CUPTI's share of its launches.
//
// Separate from the trust figures because the two are known in different ways: our code by timing a sample of
// it, CUPTI's part by estimate, from how many launches and graph nodes were recorded and what each costs
// where that was measured (proto/cupti_cost.h). A launch's time from entry to exit does not bound CUPTI's
// part, which works before entry and after exit. CUPTI's work on threads of its own is not included; what
// CUPTI reports of it is listed apart (overheads). Stateless.
#pragma once

#include <cstdint>
#include <span>

#include "collector/report/trust.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// `durations_ns`: those of the job's processes, in order.
OwnCost OwnCostOf(const model::JobModel& job, std::span<const uint64_t> durations_ns);

}  // namespace gpuprobe::analysis
