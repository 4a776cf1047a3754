#include "collector/model/job/call_matcher.h"

#include <algorithm>

#include "collector/model/calls/issued_calls.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {

CallMatcher::Identity CallMatcher::IdentityOf(const ProcessModel& process, const v1::Communicator& comm,
                                              const SettledPlan& plan) {
  if (plan.pair == 0) {
    return {.key = {comm.hash(), plan.seq, plan.replay, 0},
            .rank = static_cast<size_t>(comm.rank()),
            .ranks = comm.ranks()};
  }
  const bool sends = nccl::IsSend(process.String(plan.op));
  const auto own = static_cast<uint32_t>(comm.rank());
  const auto peer = static_cast<uint32_t>(plan.peer);
  if (own == peer) return {};
  return {
      .key = {comm.hash(), plan.pair, plan.replay, uint64_t{sends ? own : peer} << 32 | (sends ? peer : own)},
      .rank = sends ? size_t{0} : size_t{1},
      .ranks = 2};
}

void CallMatcher::Add(const Processes& processes, uint32_t index, const SettledPlan& plan,
                      RankComparison& comparison) {
  const ProcessModel& process = *processes[index];
  const v1::Communicator* comm = process.FindCommunicator(plan.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  if (comm->rank() >= IssuedCalls::kMaxRanks) return;
  const Identity id = IdentityOf(process, *comm, plan);
  if (id.key == Key{}) return;  // to itself
  auto [it, added] = calls_.try_emplace(id.key);
  if (added) {
    order_.push_back(id.key);
  } else if (const auto& present = it->second.present; id.rank < present.size() && present[id.rank]) {
    // The same rank again: another communicator with the same hash (a program run twice). What there is
    // belongs to the earlier one.
    Close(processes, id.key, it->second, comparison);
  }
  Call& call = it->second;
  call.comm_ranks = std::max(call.comm_ranks, id.ranks);
  if (call.present.size() <= id.rank)
    call.present.resize(std::max<size_t>(id.rank + 1, std::clamp(id.ranks, 0, IssuedCalls::kMaxRanks)));
  call.present[id.rank] = true;
  if (plan.lost) {
    call.lost.push_back(index);
  } else {
    call.participants.push_back({.process = index,
                                 .comm_rank = comm->rank(),
                                 .start_ns = plan.start_ns,
                                 .end_ns = plan.end_ns,
                                 .clock_shift_ns = process.ClockShift(plan.batch),
                                 .bytes = plan.bytes,
                                 .series = plan.series});
    ++waiting_;
  }
  if (static_cast<int32_t>(call.participants.size() + call.lost.size()) >= call.comm_ranks &&
      call.comm_ranks > 0) {
    Close(processes, id.key, call, comparison);
    calls_.erase(it);
  }
  CloseOldest(processes, comparison);
}

void CallMatcher::CloseOldest(const Processes& processes, RankComparison& comparison) {
  while (!order_.empty() && (calls_.size() > kMaxWaitingCalls || waiting_ > kMaxWaitingRanks ||
                             !calls_.contains(order_.front()))) {
    const auto oldest = calls_.find(order_.front());
    order_.pop_front();
    if (oldest == calls_.end()) continue;
    Close(processes, oldest->first, oldest->second, comparison);
    calls_.erase(oldest);
  }
}

void CallMatcher::Close(const Processes& processes, const Key& key, Call& call, RankComparison& comparison) {
  waiting_ -= call.participants.size();
  const bool pair = std::get<3>(key) != 0;
  const size_t heard = call.participants.size() + call.lost.size();
  const size_t ranks = static_cast<size_t>(std::max(call.comm_ranks, 0));
  if (call.participants.size() > 1) {
    comparison.Add(std::get<0>(key), processes, call.participants, call.lost,
                   ranks > heard ? ranks - heard : 0, pair);
  } else if (!pair && ranks > 1) {
    comparison.Skip(call.participants, call.lost);
  }
  call.participants.clear();
  call.lost.clear();
  call.present.clear();
}

void CallMatcher::Finish(const Processes& processes, RankComparison& comparison) {
  for (const Key& key : order_) {
    const auto found = calls_.find(key);
    if (found != calls_.end()) Close(processes, key, found->second, comparison);
  }
  calls_.clear();
  order_.clear();
  waiting_ = 0;
}

}  // namespace gpuprobe::model
