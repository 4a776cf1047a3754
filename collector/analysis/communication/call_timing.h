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

#include "collector/analysis/communication/exchanges.h"
#include "collector/model/job/job_model.h"
#include "collector/report/communication.h"

namespace gpuprobe::analysis {

class Parallelism;

// Calls of one operation and communicator (16 hex digits), in the order in which a step makes them; at most
// kMostCalls.
inline constexpr size_t kMostCalls = 64;
std::vector<CallTiming> CallTimingsOf(const model::JobModel& job, std::string_view op, std::string_view comm);

// Collectives that are launched in forward, most time first; without sends and receives.
std::vector<ForwardCommunication> ForwardCommunicationOf(const model::JobModel& job);

// Operation, communicator (16 hex digits) and size of calls that are launched in forward.
using CallSize = std::tuple<std::string, std::string, uint64_t>;
std::set<CallSize> SizesInForward(const model::JobModel& job);

// A call at its place in the steps of a member: whose it is, and how large.
struct StepCall {
  std::string op;
  std::string comm;  // 16 hex digits
  int comm_ranks = 0;
  uint64_t size_bytes = 0;
  uint32_t element_bytes = 0;  // 0: not known, or several kinds
  TransferPattern transfers = TransferPattern::kNone;
  uint32_t coarse = 0;  // as in model::CommunicationTiming::repeats()
  const model::CommunicationTiming::Call* timing = nullptr;
  const model::CollectiveSeries* series = nullptr;  // nullptr: not known
};
// Without those whose operation or communicator was never reported.
std::vector<StepCall> StepCallsOf(const model::Member& member, const Exchanges& exchanges);

// All calls of the steps, by what could hide them, most exposed time first.
std::vector<ExposedCalls> ExposedCallsOf(const model::JobModel& job, const Exchanges& exchanges,
                                         const Parallelism& parallelism);

// Of one member, per step. A transfer lasts from the arrival of the call's last rank, as in the
// table of collectives; of a call that could not be compared, all of it counts.
struct CollectiveTime {
  // Without sends and receives between the stages of a pipeline.
  double exposed_ns_per_step = 0;  // waiting included
  double transfer_ns_per_step = 0;
  double exposed_transfer_ns_per_step = 0;
  // With them.
  double all_transfer_ns_per_step = 0;
  double all_exposed_transfer_ns_per_step = 0;
};
CollectiveTime CollectiveTimeOf(const model::Member& member, const Exchanges& exchanges);

// How often a step reduces the same gradients, by the calls of this operation and communicator: once for each
// micro-batch, or 1.
int ReductionsPerStep(const model::JobModel& job, std::string_view op, std::string_view comm);

// Sends from stage to stage that the member issues in a complete step.
double SendsPerStep(const model::Member& member, const Exchanges& exchanges);

}  // namespace gpuprobe::analysis
