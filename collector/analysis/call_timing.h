// When in a step its collectives run, over all ranks: the order of the buckets, and what of forward is
// communication.
//
// Separate from communication_report.h, which tells what all of it costs. Means over ranks and steps, of what
// model::CommunicationTiming has heard. Pure.
#pragma once

#include <vector>

#include "collector/analysis/rank_types.h"
#include "collector/model/job_model.h"

namespace gpuprobe::analysis {

// Calls of one operation and communicator (16 hex digits), in the order in which a step makes them; at most
// kMostCalls.
inline constexpr size_t kMostCalls = 64;
std::vector<CallTiming> CallTimingsOf(const model::JobModel& job, std::string_view op, std::string_view comm);

// Collectives that are launched in forward, most time first; without sends and receives.
std::vector<ForwardCommunication> ForwardCommunicationOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
