// The cost of profiling to the program: our code on its threads, and CUPTI's share of its launches.
//
// Separate from the trust figures because it adds up costs measured in three ways: our code, and launches
// from entry to exit, by timing a sample of them; and CUPTI's part of a launch by comparison with moments in
// which kernels were not recorded, and by calling a function that does nothing (injector/core/launch_cost.h,
// injector/capture/cupti/callback_cost.h). A launch's time from entry to exit does not bound CUPTI's part,
// which works before entry and after exit. CUPTI's work on threads of its own is not included; what CUPTI
// reports of it is listed apart (overheads). Stateless.
#pragma once

#include <cstdint>
#include <span>

#include "collector/report/trust.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

inline constexpr double kLaunchLeastNs = 1'000;
inline constexpr double kLaunchMostNs = 3'000;
inline constexpr double kGraphNodeLeastNs = 100;  // where kernels are long enough to hide it
inline constexpr double kGraphNodeMostNs = 1'400;

// `durations_ns`: those of the job's processes, in order.
OwnCost OwnCostOf(const model::JobModel& job, std::span<const uint64_t> durations_ns);

}  // namespace gpuprobe::analysis
