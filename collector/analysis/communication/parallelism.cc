#include "collector/analysis/communication/parallelism.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "collector/analysis/communication/bus_bandwidth.h"
#include "collector/analysis/communication/call_timing.h"
#include "collector/analysis/communication/exchanges.h"
#include "collector/analysis/names.h"
#include "collector/model/job/job_model.h"
#include "collector/report/words.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using nccl::NameOf;
using nccl::Operation;
using nccl::OperationOf;

// A call made less than once in two steps is not part of the training: a metric, a check, a start.
constexpr double kLeastCalls = 0.5;
// Of what the busiest group carries: less is a loss, a norm, a counter.
constexpr double kLeastShare = 1e-3;
// No model is so small: a few losses.
constexpr double kLeastElements = 256;
// Two numbers of elements are one, but for padding and what is left out.
constexpr double kLeastAlike = 0.8;
constexpr double kMostAlike = 1.25;
// An evaluation may leave the weights gathered for the step after it.
constexpr double kLeastGathered = 0.5;
constexpr double kLeastForPasses = 0.25;

bool Alike(double a, double b) { return a >= kLeastAlike * b && a <= kMostAlike * b; }

double CollectiveElements(const GroupTraffic& t) {
  return t.reduced + t.scattered + t.gathered + t.broadcast;
}

CommunicationRole RoleOfGroup(const GroupTraffic& t, double least, bool passes_known) {
  const double reductions = t.reduced + t.scattered;
  if (CollectiveElements(t) < least) return CommunicationRole::kOther;
  if (t.scattered_in_layers >= least) return CommunicationRole::kTensorSequence;
  if (t.reduced_in_layers >= least && t.reduced_in_layers >= reductions / 2)
    return CommunicationRole::kTensor;
  const bool scatters = t.scattered >= kLeastElements && t.scattered >= t.reduced;
  if (scatters && !passes_known && t.gathered >= kLeastAlike * t.scattered)
    return CommunicationRole::kSharedUnknown;
  const bool shards = scatters && t.gathered >= kLeastGathered * t.scattered;
  if (shards && t.gathered_for_passes >= kLeastForPasses * t.gathered) return CommunicationRole::kSharded;
  if (reductions < least) return CommunicationRole::kOther;
  if (Alike(t.gathered + t.broadcast, reductions)) return CommunicationRole::kSharedState;
  return CommunicationRole::kData;
}

bool Meet(const GroupTraffic& a, const GroupTraffic& b) {
  return std::any_of(a.members.begin(), a.members.end(),
                     [&](uint32_t member) { return b.members.contains(member); });
}

CommunicationRole RoleOfTransfers(TransferPattern transfers) {
  switch (transfers) {
    case TransferPattern::kPipeline:
      return CommunicationRole::kPipeline;
    case TransferPattern::kExchange:
      return CommunicationRole::kExpert;
    case TransferPattern::kRing:
      return CommunicationRole::kRing;
    case TransferPattern::kNone:
    case TransferPattern::kStar:
      break;
  }
  return CommunicationRole::kOther;
}

CommunicationRole RoleOfExchange(std::string_view op, TransferPattern transfers) {
  if (OperationOf(op) == Operation::kAlltoAll) return CommunicationRole::kExpert;
  return RoleOfTransfers(transfers);
}

// The calls of all ranks by what they are to their communicator.
class Traffic {
 public:
  void AddMember(uint32_t member, const std::string& comm, int ranks) {
    GroupTraffic& t = by_comm_[comm];
    t.members.insert(member);
    t.ranks = ranks;
  }
  void AddCalls(std::string_view op, const std::string& comm, TransferPattern transfers, double elements,
                bool in_layers, bool for_passes) {
    GroupTraffic& t = by_comm_[comm];
    if (const CommunicationRole role = RoleOfExchange(op, transfers); role != CommunicationRole::kOther)
      exchanged_[role][comm] += elements;
    switch (OperationOf(op)) {
      case Operation::kAllReduce:
        t.reduced += elements;
        t.reduced_in_layers += in_layers ? elements : 0;
        break;
      case Operation::kReduceScatter:
        t.scattered += elements;
        t.scattered_in_layers += in_layers ? elements : 0;
        break;
      case Operation::kAllGather:
        t.gathered += elements;
        t.gathered_for_passes += for_passes ? elements : 0;
        break;
      case Operation::kBroadcast:
        t.broadcast += for_passes ? 0 : elements;
        break;
      default:
        t.exchanged += elements;
    }
  }
  // Those that join the same ranks, as means over these; `group_of`: of each communicator. Where ranks report
  // elsewhere, it is not known which they are.
  std::vector<GroupTraffic> Groups(std::map<std::string, size_t>& group_of) const {
    std::map<std::pair<std::set<uint32_t>, std::string>, size_t> known;
    std::vector<GroupTraffic> groups;
    for (const auto& [comm, t] : by_comm_) {
      const bool whole = static_cast<int>(t.members.size()) >= t.ranks;
      const auto [group, added] = known.try_emplace({t.members, whole ? std::string() : comm}, groups.size());
      if (added) groups.push_back({.members = t.members, .ranks = t.ranks});
      group_of[comm] = group->second;
      const auto reporting = static_cast<double>(t.members.size());
      GroupTraffic& sum = groups[group->second];
      for (double GroupTraffic::*part : kParts) sum.*part += t.*part / reporting;
    }
    return groups;
  }
  // Roles of exchanges that carry `least` elements on some communicator. Stages hand on little beside the
  // gradients of a large model, and only a pipeline hands on.
  std::set<CommunicationRole> Exchanged(double least) const {
    std::set<CommunicationRole> out;
    for (const auto& [role, by_comm] : exchanged_) {
      for (const auto& [comm, elements] : by_comm) {
        const double each = elements / static_cast<double>(by_comm_.at(comm).members.size());
        if (role == CommunicationRole::kPipeline || each >= least) out.insert(role);
      }
    }
    return out;
  }

 private:
  static constexpr double GroupTraffic::*kParts[] = {
      &GroupTraffic::reduced,   &GroupTraffic::reduced_in_layers,
      &GroupTraffic::scattered, &GroupTraffic::scattered_in_layers,
      &GroupTraffic::gathered,  &GroupTraffic::gathered_for_passes,
      &GroupTraffic::broadcast, &GroupTraffic::exchanged};

  std::map<std::string, GroupTraffic> by_comm_;  // sums over the ranks
  std::map<CommunicationRole, std::map<std::string, double>> exchanged_;
};

// What a group carries must be as much to have a role.
double LeastOf(const std::vector<GroupTraffic>& groups) {
  double most = 0;
  for (const GroupTraffic& t : groups) most = std::max(most, CollectiveElements(t) + t.exchanged);
  return std::max(kLeastShare * most, kLeastElements);
}

double ElementsIn(uint64_t size_bytes, uint32_t element_bytes) {
  return static_cast<double>(size_bytes) / (element_bytes == 0 ? 4 : element_bytes);
}

// How often the micro-batches of a step make these calls alike.
double RepeatsOf(const model::CommunicationTiming& timing, uint32_t coarse) {
  constexpr double kMost = 0.8;  // of the steps; others may be cut off
  const auto found = timing.repeats().find(coarse);
  if (found == timing.repeats().end()) return 1;
  const auto steps = static_cast<double>(found->second.steps);
  if (steps < kMost * static_cast<double>(timing.steps())) return 1;
  return std::max(static_cast<double>(found->second.times) / steps, 1.0);
}

// Of the calls that a member's steps make.
void AddStepCalls(const model::Member& member, const Exchanges& exchanges, Traffic& traffic) {
  const model::CommunicationTiming& timing = member.steps().communication();
  const auto steps = static_cast<double>(timing.steps());
  const std::vector<StepCall> calls = StepCallsOf(member, exchanges);
  const auto in_steps = [](uint64_t amid, const StepCall& call) {
    constexpr uint64_t kOneIn = 5;  // steps at least; one may be misjudged
    return amid * kOneIn > call.timing->steps;
  };
  std::set<CallSize> amid_forward;
  for (const StepCall& call : calls) {
    if (in_steps(call.timing->amid_forward_steps, call))
      amid_forward.emplace(call.op, call.comm, call.size_bytes);
  }
  for (const StepCall& call : calls) {
    const double per_step = static_cast<double>(call.timing->steps) / steps;
    if (per_step < kLeastCalls || call.comm_ranks < 2) continue;
    double elements = per_step * ElementsIn(call.size_bytes, call.element_bytes);
    const bool reduces = nccl::ReducesForAll(call.op);
    if (reduces) elements /= RepeatsOf(timing, call.coarse);
    const bool in_layers =
        reduces ? amid_forward.contains({call.op, call.comm, call.size_bytes})
                : in_steps(call.timing->amid_forward_steps + call.timing->amid_backward_steps, call);
    traffic.AddMember(member.number, call.comm, call.comm_ranks);
    const bool for_passes = in_layers || in_steps(call.timing->ahead_of_forward_steps, call);
    traffic.AddCalls(call.op, call.comm, call.transfers, elements, in_layers, for_passes);
  }
}

// Of all calls. Broadcasts are those of the start.
void AddSeries(const model::Member& member, const Exchanges& exchanges, Traffic& traffic) {
  member.ForEachSeries([&](const model::CollectiveSeries& series) {
    const v1::Communicator* comm = member.process->FindCommunicator(series.comm);
    if (comm == nullptr || comm->hash() == 0 || comm->ranks() < 2) return;
    const std::string name = CommName(comm->hash());
    traffic.AddMember(member.number, name, comm->ranks());
    for (const model::CollectivePart& part : series.parts) {
      const std::string op(member.process->String(part.op));
      if (OperationOf(op) == Operation::kBroadcast) continue;
      const MovedBytes moved = MovedBytesOf(op, part.bytes, comm->ranks());
      traffic.AddCalls(op, name, exchanges.Of(*member.process, series),
                       ElementsIn(static_cast<uint64_t>(moved.algorithm), series.element_bytes), false,
                       false);
    }
  });
}

}  // namespace

std::vector<CommunicationRole> RolesOf(const std::vector<GroupTraffic>& groups, bool passes_known) {
  const double least = LeastOf(groups);
  std::vector<CommunicationRole> roles;
  roles.reserve(groups.size());
  for (const GroupTraffic& t : groups) roles.push_back(RoleOfGroup(t, least, passes_known));
  const std::vector<CommunicationRole> alone = roles;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (alone[i] != CommunicationRole::kData) continue;
    for (size_t k = 0; k < groups.size(); ++k) {
      if (k == i || !Meet(groups[i], groups[k])) continue;
      if (alone[k] == CommunicationRole::kSharded &&
          Alike(groups[i].reduced * groups[k].ranks, groups[k].scattered))
        roles[i] = CommunicationRole::kReplicas;
      if (alone[k] == CommunicationRole::kData && !passes_known) roles[i] = CommunicationRole::kTensorOrData;
    }
  }
  return roles;
}

Parallelism::Parallelism(const model::JobModel& job, const Exchanges& exchanges) {
  Traffic traffic;
  bool passes_known = false;
  const model::Members members = job.ReportedMembers();
  for (const model::Member& member : members) {
    AddStepCalls(member, exchanges, traffic);
    passes_known = passes_known || member.steps().communication().forward_compute_ns() > 0;
  }
  std::map<std::string, size_t> group_of;
  std::vector<GroupTraffic> groups = traffic.Groups(group_of);
  if (groups.empty()) {
    for (const model::Member& member : members) AddSeries(member, exchanges, traffic);
    groups = traffic.Groups(group_of);
    passes_known = false;
  }
  const std::vector<CommunicationRole> roles = RolesOf(groups, passes_known);
  for (const auto& [comm, group] : group_of) {
    if (roles[group] != CommunicationRole::kOther) roles_[comm] = roles[group];
  }
  exchanges_ = traffic.Exchanged(LeastOf(groups));
}

CommunicationRole Parallelism::RoleOf(std::string_view op, const std::string& comm,
                                      TransferPattern transfers) const {
  const CommunicationRole exchange = RoleOfExchange(op, transfers);
  if (exchange != CommunicationRole::kOther)
    return exchanges_.contains(exchange) ? exchange : CommunicationRole::kOther;
  const auto found = roles_.find(comm);
  if (found == roles_.end() || nccl::CarriesTransfers(op)) return CommunicationRole::kOther;
  const bool reduces = OperationOf(op) == Operation::kAllReduce;
  switch (found->second) {  // losses and norms, metrics and buffers
    case CommunicationRole::kSharded:
    case CommunicationRole::kSharedUnknown:
      return reduces ? CommunicationRole::kOther : found->second;
    case CommunicationRole::kData:
    case CommunicationRole::kReplicas:
      return nccl::ReducesForAll(op) ? found->second : CommunicationRole::kOther;
    default:
      return found->second;
  }
}

std::vector<CommunicationRole> Parallelism::Pattern() const {
  std::set<CommunicationRole> all = exchanges_;
  for (const auto& [comm, role] : roles_) all.insert(role);
  if (all.contains(CommunicationRole::kReplicas)) all.erase(CommunicationRole::kSharded);
  std::vector<CommunicationRole> out;
  for (const auto& [role, word] : report::WordsOf<CommunicationRole>()) {
    if (all.contains(static_cast<CommunicationRole>(role)) && !word.empty())
      out.push_back(static_cast<CommunicationRole>(role));
  }
  return out;
}

bool ReducesGradients(CommunicationRole role) {
  switch (role) {
    case CommunicationRole::kData:
    case CommunicationRole::kReplicas:
    case CommunicationRole::kSharded:
    case CommunicationRole::kSharedState:
    case CommunicationRole::kSharedUnknown:
      return true;
    default:
      return false;
  }
}

std::map<std::string, double> BytesShareOf(const std::vector<CollectiveReport>& collectives) {
  std::map<std::string, double> bytes;
  double all = 0;
  for (const CollectiveReport& c : collectives) {
    if (c.comm_ranks < 2) continue;
    bytes[nccl::CarriesTransfers(c.op) ? std::string(NameOf(Operation::kSendRecv)) : c.op] +=
        static_cast<double>(c.bytes);
    all += static_cast<double>(c.bytes);
  }
  if (all <= 0) return {};
  for (auto& [op, share] : bytes) share /= all;
  return bytes;
}

}  // namespace gpuprobe::analysis
