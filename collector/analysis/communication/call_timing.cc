#include "collector/analysis/communication/call_timing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/match.h"
#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/communication/parallelism.h"
#include "collector/analysis/names.h"
#include "collector/analysis/stragglers/straggler_report.h"
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

// Which series of a process the calls of its steps belong to.
class SeriesOfCalls {
 public:
  explicit SeriesOfCalls(const model::Member& member) : member_(member) {
    member.ForEachSeries([&](const model::CollectiveSeries& series) {
      for (const model::CollectivePart& part : series.parts)
        by_call_[{series.comm, series.calls_per_plan, series.size_bytes, part.op}] = &series;
    });
  }
  // nullptr: not known.
  const model::CollectiveSeries* Of(uint32_t token) const {
    const auto& names = member_.steps().communication().names();
    const auto name = names.find(token);
    if (name == names.end()) return nullptr;
    const auto& call = name->second;
    const auto found = by_call_.find({call.comm, std::max(call.calls, 1U), call.bytes, call.op});
    return found == by_call_.end() ? nullptr : found->second;
  }

 private:
  const model::Member& member_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t, uint32_t>, const model::CollectiveSeries*> by_call_;
};

TransferPattern PatternOf(const Exchanges& exchanges, const model::Member& member,
                          const model::CollectiveSeries* series) {
  return series == nullptr ? TransferPattern::kNone : exchanges.Of(*member.process, *series);
}

// Describes the call of a token; without operation or communicator if that was never reported.
Known Describe(const model::Member& member, uint32_t token) {
  Known known;
  const auto& names = member.steps().communication().names();
  const auto name = names.find(token);
  if (name == names.end()) return known;
  const v1::Communicator* comm = member.process->FindCommunicator(name->second.comm);
  if (comm == nullptr || comm->hash() == 0) return known;
  known.op = member.process->String(name->second.op);
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
  for (const model::Member& member : job.ReportedMembers()) {
    for (const auto& [key, call] : member.steps().communication().calls()) {
      if (key.second >= kMostCalls) continue;
      const Known known = Describe(member, call.token);
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
  for (const model::Member& member : job.ReportedMembers()) {
    const model::CommunicationTiming& timing = member.steps().communication();
    steps += timing.steps();
    forward_ns += timing.forward_compute_ns();
    for (const auto& [key, call] : timing.calls()) {
      if (call.forward_steps == 0) continue;
      const Known known = Describe(member, call.token);
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

struct ExposedSum {
  uint64_t calls = 0;
  uint64_t time_ns = 0;
  uint64_t exposed_ns = 0;
  double transfer_ns = 0;
  double exposed_transfer_ns = 0;

  void Add(const ExposedSum& other) {
    calls += other.calls;
    time_ns += other.time_ns;
    exposed_ns += other.exposed_ns;
    transfer_ns += other.transfer_ns;
    exposed_transfer_ns += other.exposed_transfer_ns;
  }
};
// Operation, communicator's ranks, role, whether calls of this size are made in forward, and what sends and
// receives are for.
using ExposedKey = std::tuple<std::string, int, CommunicationRole, bool, TransferPattern>;

// A call takes its transfer at the end, when the last rank has come, so what is exposed is the transfer
// first. Of calls that were not compared, all may be transfer.
ExposedSum SumOf(const model::CommunicationTiming::Call& call, const model::Member& member,
                 const model::CollectiveSeries* series) {
  ExposedSum sum{.calls = call.steps,
                 .time_ns = call.time_ns,
                 .exposed_ns = call.time_ns - std::min(call.hidden_ns, call.time_ns)};
  sum.transfer_ns = static_cast<double>(call.time_ns);
  const model::SteadyTransfers::Sums steady =
      series == nullptr ? model::SteadyTransfers::Sums() : member.Compared(*series).steady.sums();
  if (steady.calls > 0) {
    sum.transfer_ns =
        std::min(sum.transfer_ns, Per(steady.transfer_ns, steady.calls) * static_cast<double>(call.steps));
  }
  sum.exposed_transfer_ns = std::min(sum.transfer_ns, static_cast<double>(sum.exposed_ns));
  return sum;
}

// A member's calls by size and by what transfers are for, and whether they are made in forward.
struct SizeSum {
  int comm_ranks = 0;
  ExposedSum sum;
  bool in_forward = false;
};
std::map<std::pair<CallSize, TransferPattern>, SizeSum> SizesOf(const model::Member& member,
                                                                const Exchanges& exchanges) {
  std::map<std::pair<CallSize, TransferPattern>, SizeSum> out;
  for (const StepCall& call : StepCallsOf(member, exchanges)) {
    SizeSum& size = out[{CallSize(call.op, call.comm, call.size_bytes), call.transfers}];
    size.comm_ranks = call.comm_ranks;
    size.sum.Add(SumOf(*call.timing, member, call.series));
    size.in_forward = size.in_forward || IsInForward(*call.timing);
  }
  return out;
}

}  // namespace

std::vector<StepCall> StepCallsOf(const model::Member& member, const Exchanges& exchanges) {
  std::vector<StepCall> out;
  const SeriesOfCalls series_of(member);
  for (const auto& [key, timing] : member.steps().communication().calls()) {
    const Known known = Describe(member, timing.token);
    if (known.op.empty()) continue;
    StepCall call{.op = known.op,
                  .comm = known.comm,
                  .comm_ranks = known.comm_ranks,
                  .size_bytes = known.size_bytes,
                  .coarse = key.first,
                  .timing = &timing,
                  .series = series_of.Of(timing.token)};
    call.transfers = PatternOf(exchanges, member, call.series);
    if (call.transfers == TransferPattern::kExchange || call.transfers == TransferPattern::kRing)
      call.op = nccl::NameOf(nccl::Operation::kSendRecv);
    if (call.series != nullptr && !call.series->mixed_elements)
      call.element_bytes = call.series->element_bytes;
    out.push_back(std::move(call));
  }
  return out;
}

std::set<CallSize> SizesInForward(const model::JobModel& job) {
  std::set<CallSize> out;
  for (const model::Member& member : job.ReportedMembers()) {
    for (const auto& [key, call] : member.steps().communication().calls()) {
      if (!IsInForward(call)) continue;
      const Known known = Describe(member, call.token);
      if (!known.op.empty()) out.emplace(known.op, known.comm, known.size_bytes);
    }
  }
  return out;
}

std::vector<ExposedCalls> ExposedCallsOf(const model::JobModel& job, const Exchanges& exchanges,
                                         const Parallelism& parallelism) {
  std::map<ExposedKey, ExposedCalls> sums;
  double ranks = 0;
  for (const model::Member& member : job.ReportedMembers()) {
    const uint64_t steps = member.steps().communication().steps();
    if (steps == 0) continue;
    ++ranks;
    for (const auto& [key, size] : SizesOf(member, exchanges)) {
      const auto& [op, comm, bytes] = key.first;
      ExposedCalls& into =
          sums[{op, size.comm_ranks, parallelism.RoleOf(op, comm, key.second), size.in_forward, key.second}];
      into.calls_per_step += Per(size.sum.calls, steps);
      into.time_ns_per_step += Per(size.sum.time_ns, steps);
      into.exposed_ns_per_step += Per(size.sum.exposed_ns, steps);
      into.exposed_transfer_ns_per_step += size.sum.exposed_transfer_ns / static_cast<double>(steps);
    }
  }
  std::vector<ExposedCalls> out;
  for (auto& [key, sum] : sums) {
    std::tie(sum.op, sum.comm_ranks, sum.role, sum.in_forward, sum.transfers) = key;
    for (double* mean : {&sum.calls_per_step, &sum.time_ns_per_step, &sum.exposed_ns_per_step,
                         &sum.exposed_transfer_ns_per_step})
      *mean /= ranks;
    out.push_back(sum);
  }
  std::stable_sort(out.begin(), out.end(), [](const ExposedCalls& a, const ExposedCalls& b) {
    return a.exposed_ns_per_step > b.exposed_ns_per_step;
  });
  return out;
}

CollectiveTime CollectiveTimeOf(const model::Member& member, const Exchanges& exchanges) {
  CollectiveTime out;
  const model::CommunicationTiming& timing = member.steps().communication();
  const uint64_t steps = timing.steps();
  if (steps == 0) return out;
  const auto per_step = [steps](double sum) { return sum / static_cast<double>(steps); };
  double time_ns = 0;
  double exposed_ns = 0;
  for (const auto& [key, size] : SizesOf(member, exchanges)) {
    const ExposedSum& sum = size.sum;
    time_ns += Per(sum.time_ns, steps);
    exposed_ns += Per(sum.exposed_ns, steps);
    out.all_transfer_ns_per_step += per_step(sum.transfer_ns);
    out.all_exposed_transfer_ns_per_step += per_step(sum.exposed_transfer_ns);
    if (key.second == TransferPattern::kPipeline) continue;
    out.exposed_ns_per_step += Per(sum.exposed_ns, steps);
    out.transfer_ns_per_step += per_step(sum.transfer_ns);
    out.exposed_transfer_ns_per_step += per_step(sum.exposed_transfer_ns);
  }
  if (timing.calls().size() < model::CommunicationTiming::kMaxCalls || time_ns <= 0) return out;
  // Calls beyond those that have a place wait as much as the others; often they are the last of a step,
  // which is exposed.
  const StepMeans means = StepMeansOf(member);
  const double rest_ns = std::max(means.comm_ns - time_ns, 0.0) * out.all_transfer_ns_per_step / time_ns;
  out.all_transfer_ns_per_step += rest_ns;
  out.all_exposed_transfer_ns_per_step +=
      std::min(std::max(means.exposed_comm_ns - exposed_ns, 0.0), rest_ns);
  return out;
}

int ReductionsPerStep(const model::JobModel& job, std::string_view op, std::string_view comm) {
  // Steps that are judged otherwise may be cut off, or evaluate.
  constexpr double kMost = 0.8;
  uint64_t steps = 0;
  model::CommunicationTiming::Repeats sum;
  for (const model::Member& member : job.ReportedMembers()) {
    const model::CommunicationTiming& timing = member.steps().communication();
    std::set<uint32_t> counted;
    for (const auto& [key, call] : timing.calls()) {
      const Known known = Describe(member, call.token);
      if (known.op != op || known.comm != comm || !counted.insert(key.first).second) continue;
      steps += timing.steps();
      const auto repeats = timing.repeats().find(key.first);
      if (repeats == timing.repeats().end()) continue;
      sum.steps += repeats->second.steps;
      sum.times += repeats->second.times;
    }
  }
  if (sum.steps == 0 || static_cast<double>(sum.steps) < kMost * static_cast<double>(steps)) return 1;
  return static_cast<int>(std::lround(Per(sum.times, sum.steps)));
}

double SendsPerStep(const model::Member& member, const Exchanges& exchanges) {
  // Sends and receives have one kernel, so steps tell how many of both there are; which of them are sends,
  // the calls tell.
  double sends = 0;
  double all = 0;
  member.ForEachSeries([&](const model::CollectiveSeries& series) {
    if (exchanges.Of(*member.process, series) != TransferPattern::kPipeline) return;
    for (const model::CollectivePart& part : series.parts) {
      all += static_cast<double>(part.calls);
      sends += nccl::IsSend(member.process->String(part.op)) ? static_cast<double>(part.calls) : 0;
    }
  });
  if (all == 0) return 0;
  const model::CommunicationTiming& timing = member.steps().communication();
  const SeriesOfCalls series_of(member);
  double transfers = 0;
  for (const auto& [key, call] : timing.calls()) {
    const model::CollectiveSeries* series = series_of.Of(call.token);
    if (PatternOf(exchanges, member, series) != TransferPattern::kPipeline) continue;
    transfers += Per(call.steps, timing.steps()) * std::max(series->calls_per_plan, 1U);
  }
  return transfers * sends / all;
}

}  // namespace gpuprobe::analysis
