#include "collector/analysis/call_timing.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "collector/analysis/bus_bandwidth.h"
#include "collector/analysis/names.h"
#include "collector/model/statistics/whole_number.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

struct Known {
  std::string op;
  std::string comm;
  int comm_ranks = 0;
  uint64_t size_bytes = 0;
};

// Describes the call of a token; without operation or communicator if that was never reported.
Known Describe(const model::ProcessModel& process, uint32_t token) {
  Known known;
  const auto& names = process.steps().communication().names();
  const auto name = names.find(token);
  if (name == names.end()) return known;
  const v1::Communicator* comm = process.FindCommunicator(name->second.comm);
  if (comm == nullptr || comm->hash() == 0) return known;
  known.op = process.String(name->second.op);
  known.comm = CommName(comm->hash());
  known.comm_ranks = comm->ranks();
  known.size_bytes =
      model::WholeNumber(MovedBytesOf(known.op, name->second.bytes, std::max(known.comm_ranks, 1)).algorithm);
  return known;
}

// Launched in forward usually, and before backward: a thread of its own that reduces gradients while backward
// runs, and that no name distinguishes from forward's, is not.
bool IsInForward(const model::CommunicationTiming::Call& call) {
  constexpr uint64_t kOneIn = 5;  // steps at least; one may be misjudged
  const bool before = call.backward_steps == 0 || call.after_backward_ns < 0;
  return before && call.forward_steps > 0 && call.forward_steps * kOneIn >= call.steps;
}

double Per(uint64_t sum, uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

}  // namespace

std::vector<CallTiming> CallTimingsOf(const model::JobModel& job, std::string_view op,
                                      std::string_view comm) {
  struct Sum {
    model::CommunicationTiming::Call call;
    uint64_t size_bytes = 0;
  };
  std::map<uint32_t, Sum> by_place;
  for (const auto& process : job.processes()) {
    for (const auto& [key, call] : process->steps().communication().calls()) {
      if (key.second >= kMostCalls) continue;
      const Known known = Describe(*process, call.token);
      if (known.op != op || known.comm != comm) continue;
      Sum& sum = by_place[key.second];
      sum.size_bytes = known.size_bytes;
      sum.call.steps += call.steps;
      sum.call.time_ns += call.time_ns;
      sum.call.hidden_ns += call.hidden_ns;
      sum.call.backward_steps += call.backward_steps;
      sum.call.after_backward_ns += call.after_backward_ns;
    }
  }
  std::vector<CallTiming> out;
  for (const auto& [place, sum] : by_place) {
    CallTiming timing{.place = place,
                      .size_bytes = sum.size_bytes,
                      .steps = sum.call.steps,
                      .time_ns = Per(sum.call.time_ns, sum.call.steps),
                      .hidden_share = std::nullopt,
                      .after_backward_ns = std::nullopt};
    if (sum.call.time_ns > 0) timing.hidden_share = Per(sum.call.hidden_ns, sum.call.time_ns);
    if (sum.call.backward_steps > 0) {
      timing.after_backward_ns =
          static_cast<double>(sum.call.after_backward_ns) / static_cast<double>(sum.call.backward_steps);
    }
    out.push_back(timing);
  }
  return out;
}

std::vector<ForwardCommunication> ForwardCommunicationOf(const model::JobModel& job) {
  struct Sum {
    uint64_t calls = 0;
    uint64_t time_ns = 0;
    uint64_t exposed_ns = 0;
    int comm_ranks = 0;
  };
  std::map<std::string, Sum> by_op;
  uint64_t steps = 0;
  uint64_t forward_ns = 0;
  for (const auto& process : job.processes()) {
    const model::CommunicationTiming& timing = process->steps().communication();
    steps += timing.steps();
    forward_ns += timing.forward_compute_ns();
    for (const auto& [key, call] : timing.calls()) {
      if (call.forward_steps == 0) continue;
      const Known known = Describe(*process, call.token);
      if (known.op.empty() || nccl::CarriesTransfers(known.op)) continue;
      Sum& sum = by_op[known.op];
      sum.calls += call.forward_steps;
      sum.time_ns += call.forward_ns;
      sum.exposed_ns += call.forward_ns - std::min(call.forward_hidden_ns, call.forward_ns);
      sum.comm_ranks = std::max(sum.comm_ranks, known.comm_ranks);
      forward_ns += call.forward_ns - std::min(call.forward_hidden_ns, call.forward_ns);
    }
  }
  std::vector<ForwardCommunication> out;
  out.reserve(by_op.size());
  for (const auto& [op, sum] : by_op) {
    out.push_back({.op = op,
                   .comm_ranks = sum.comm_ranks,
                   .calls_per_step = Per(sum.calls, steps),
                   .time_ns_per_step = Per(sum.time_ns, steps),
                   .exposed_ns_per_step = Per(sum.exposed_ns, steps),
                   .share_of_forward = Per(sum.exposed_ns, forward_ns)});
  }
  std::stable_sort(out.begin(), out.end(), [](const ForwardCommunication& a, const ForwardCommunication& b) {
    return a.time_ns_per_step > b.time_ns_per_step;
  });
  return out;
}

namespace {

// Calls of one process, by operation, communicator's ranks and whether calls of this size are made in
// forward.
struct ExposedSum {
  uint64_t calls = 0;
  uint64_t time_ns = 0;
  uint64_t exposed_ns = 0;
};
using ExposedKey = std::tuple<std::string, int, bool>;

std::map<ExposedKey, ExposedSum> ExposedOf(const model::ProcessModel& process) {
  std::map<CallSize, std::pair<ExposedSum, bool>> by_size;
  std::map<CallSize, int> ranks;
  for (const auto& [key, call] : process.steps().communication().calls()) {
    const Known known = Describe(process, call.token);
    if (known.op.empty()) continue;
    const CallSize size(known.op, known.comm, known.size_bytes);
    auto& [sum, in_forward] = by_size[size];
    ranks[size] = known.comm_ranks;
    sum.calls += call.steps;
    sum.time_ns += call.time_ns;
    sum.exposed_ns += call.time_ns - std::min(call.hidden_ns, call.time_ns);
    in_forward = in_forward || IsInForward(call);
  }
  std::map<ExposedKey, ExposedSum> out;
  for (const auto& [size, found] : by_size) {
    const auto& [sum, in_forward] = found;
    ExposedSum& into = out[{std::get<0>(size), ranks[size], in_forward}];
    into.calls += sum.calls;
    into.time_ns += sum.time_ns;
    into.exposed_ns += sum.exposed_ns;
  }
  return out;
}

}  // namespace

std::set<CallSize> SizesInForward(const model::JobModel& job) {
  std::set<CallSize> out;
  for (const auto& process : job.processes()) {
    for (const auto& [key, call] : process->steps().communication().calls()) {
      if (!IsInForward(call)) continue;
      const Known known = Describe(*process, call.token);
      if (!known.op.empty()) out.emplace(known.op, known.comm, known.size_bytes);
    }
  }
  return out;
}

std::vector<ExposedCalls> ExposedCallsOf(const model::JobModel& job) {
  std::map<ExposedKey, ExposedCalls> sums;
  double ranks = 0;
  for (const auto& process : job.processes()) {
    const uint64_t steps = process->steps().communication().steps();
    if (steps == 0) continue;
    ++ranks;
    for (const auto& [key, sum] : ExposedOf(*process)) {
      ExposedCalls& into = sums[key];
      into.calls_per_step += Per(sum.calls, steps);
      into.time_ns_per_step += Per(sum.time_ns, steps);
      into.exposed_ns_per_step += Per(sum.exposed_ns, steps);
    }
  }
  std::vector<ExposedCalls> out;
  for (auto& [key, sum] : sums) {
    std::tie(sum.op, sum.comm_ranks, sum.in_forward) = key;
    for (double* mean : {&sum.calls_per_step, &sum.time_ns_per_step, &sum.exposed_ns_per_step})
      *mean /= ranks;
    out.push_back(sum);
  }
  std::stable_sort(out.begin(), out.end(), [](const ExposedCalls& a, const ExposedCalls& b) {
    return a.exposed_ns_per_step > b.exposed_ns_per_step;
  });
  return out;
}

std::vector<CollectiveTime> CollectiveTimesOf(const model::JobModel& job) {
  std::vector<CollectiveTime> out;
  for (const auto& process : job.processes()) {
    CollectiveTime& rank = out.emplace_back();
    const uint64_t steps = process->steps().communication().steps();
    if (steps == 0) continue;
    for (const auto& [key, sum] : ExposedOf(*process)) {
      if (nccl::IsTransfer(std::get<0>(key))) continue;
      rank.time_ns_per_step += Per(sum.time_ns, steps);
      rank.exposed_ns_per_step += Per(sum.exposed_ns, steps);
    }
  }
  return out;
}

double SendsPerStep(const model::ProcessModel& process) {
  // Sends and receives have one kernel, so steps tell how many of both there are; which of them are sends,
  // the calls tell.
  double sends = 0;
  double all = 0;
  for (const auto& series : process.collectives().series()) {
    for (const model::CollectivePart& part : series->parts) {
      const std::string& op = process.String(part.op);
      if (!nccl::IsTransfer(op)) continue;
      all += static_cast<double>(part.calls);
      sends += nccl::IsSend(op) ? static_cast<double>(part.calls) : 0;
    }
  }
  const model::CommunicationTiming& timing = process.steps().communication();
  double transfers = 0;
  for (const auto& [key, call] : timing.calls()) {
    const auto name = timing.names().find(call.token);
    if (name == timing.names().end() || !nccl::IsTransfer(process.String(name->second.op))) continue;
    transfers += Per(call.steps, timing.steps()) * std::max(name->second.calls, 1U);
  }
  return all > 0 ? transfers * sends / all : 0;
}

}  // namespace gpuprobe::analysis
