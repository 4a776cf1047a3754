// When in a step its collectives run, over all ranks: the order of the buckets, and how much of forward is
// communication.
//
// Separate from communication_report.h, which says what all of it costs. Means over ranks and steps, from
// model::CommunicationTiming. Pure.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collector/analysis/report/communication.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// Calls of one operation and communicator (16 hex digits), in the order in which a step makes them; at most
// kMostCalls.
inline constexpr size_t kMostCalls = 64;
std::vector<CallTiming> CallTimingsOf(const model::JobModel& job, std::string_view op, std::string_view comm);

// Collectives that are launched in forward, most time first; without sends and receives.
std::vector<ForwardCommunication> ForwardCommunicationOf(const model::JobModel& job);

// Operation, communicator (16 hex digits) and size of calls that are launched in forward.
using CallSize = std::tuple<std::string, std::string, uint64_t>;
std::set<CallSize> SizesInForward(const model::JobModel& job);

// All calls of the steps, by what could hide them, most exposed time first.
std::vector<ExposedCalls> ExposedCallsOf(const model::JobModel& job);

// Per process of the job and per step: collectives without sends and receives, their waiting included.
struct CollectiveTime {
  double time_ns_per_step = 0;
  double exposed_ns_per_step = 0;
};
std::vector<CollectiveTime> CollectiveTimesOf(const model::JobModel& job);

// Sends that the process issues in a complete step.
double SendsPerStep(const model::ProcessModel& process);

}  // namespace gpuprobe::analysis
