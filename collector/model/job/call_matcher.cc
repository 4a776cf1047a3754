#include "collector/model/job/call_matcher.h"

#include <algorithm>
#include <set>

#include "collector/model/calls/issued_calls.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {

void CallMatcher::Add(const Members& members, uint32_t number, const SettledPlan& plan,
                      RankComparison& comparison) {
  const v1::Communicator* comm = members[number].process->FindCommunicator(plan.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  if (comm->rank() >= IssuedCalls::kMaxRanks) return;
  if (!plan.transfers.empty()) return AddTransfers(members, number, *comm, plan, comparison);
  const Key key{comm->hash(), plan.seq, plan.replay, 0};
  const auto rank = static_cast<size_t>(comm->rank());
  auto [it, added] = calls_.try_emplace(key);
  if (added) {
    order_.push_back(key);
    CountWaiting(comm->hash(), 1, 0);
    it->second.participants.reserve(
        std::min(static_cast<size_t>(std::max(comm->ranks(), 0)), members.size()));
  } else if (const auto& present = it->second.present; rank < present.size() && present[rank]) {
    // The same rank again: another communicator with the same hash (a program run twice). The entry so far
    // belongs to the earlier one.
    Close(members, key, it->second, comparison);
  }
  Call& call = it->second;
  call.comm_ranks = std::max(call.comm_ranks, comm->ranks());
  if (call.present.size() <= rank)
    call.present.resize(std::max<size_t>(rank + 1, std::clamp(comm->ranks(), 0, IssuedCalls::kMaxRanks)));
  call.present[rank] = true;
  AddRank(number, *comm, plan, call);
  if (!plan.lost) CountWaiting(comm->hash(), 0, 1);
  if (static_cast<int32_t>(call.participants.size() + call.lost.size()) >= call.comm_ranks &&
      call.comm_ranks > 0) {
    NoteWhole(comm->hash(), true);
    Close(members, key, call, comparison);
    CountWaiting(comm->hash(), -1, 0);
    calls_.erase(it);
  }
  CloseOldest(members, comparison);
}

void CallMatcher::AddRank(uint32_t member, const v1::Communicator& comm, const SettledPlan& plan,
                          Call& call) {
  if (plan.lost) {
    call.lost.push_back(member);
    return;
  }
  call.participants.push_back({.member = member,
                               .comm_rank = comm.rank(),
                               .start_ns = plan.start_ns,
                               .end_ns = plan.end_ns,
                               .clock_shift_ns = plan.clock_shift_ns,
                               .bytes = plan.bytes,
                               .series = plan.series->place});
}

bool CallMatcher::AddShape(const ProcessModel& process, const v1::Communicator& comm,
                           const SettledPlan& plan) {
  std::set<uint32_t> to;
  std::set<uint32_t> from;
  for (const TransferEnd& end : plan.transfers)
    (nccl::IsSend(process.String(end.op)) ? to : from).insert(static_cast<uint32_t>(end.peer));
  TransferShapes& shapes = plan.series->shapes;
  if (to.empty() || from.empty()) {
    ++shapes.one_way;
    return true;
  }
  ++shapes.both_ways;
  const auto mutual = static_cast<uint32_t>(
      std::count_if(to.begin(), to.end(), [&](uint32_t peer) { return from.contains(peer); }));
  shapes.mutual = std::max(shapes.mutual, mutual);
  shapes.peers = std::max(shapes.peers, static_cast<uint32_t>(to.size() + from.size()) - mutual);
  shapes.with_itself = shapes.with_itself || to.contains(static_cast<uint32_t>(comm.rank()));
  return false;
}

void CallMatcher::AddTransfers(const Members& members, uint32_t member, const v1::Communicator& comm,
                               const SettledPlan& plan, RankComparison& comparison) {
  const ProcessModel& process = *members[member].process;
  const auto own = static_cast<uint32_t>(comm.rank());
  if (AddShape(process, comm, plan) && one_way_.size() < kMaxWaitingCalls)
    one_way_[{member, comm.hash()}] = 1;
  uint64_t number = next_meeting_++;
  Meeting& added = meetings_[number];
  added.hash = comm.hash();
  AddRank(member, comm, plan, added.call);
  added.one_way = one_way_.contains({member, comm.hash()});
  for (const TransferEnd& end : plan.transfers) {
    const bool sends = nccl::IsSend(process.String(end.op));
    const auto peer = static_cast<uint32_t>(end.peer);
    if (peer == own) continue;
    const Key key{comm.hash(), end.ordinal, plan.replay,
                  uint64_t{sends ? own : peer} << 32 | (sends ? peer : own)};
    const auto half = halves_.find(key);
    if (half != halves_.end() && half->second.sends != sends) {
      const uint64_t other = half->second.meeting;
      halves_.erase(half);
      --meetings_[other].halves;
      number = Merge(number, other,
                     std::max<size_t>(members.size(), static_cast<size_t>(std::max(comm.ranks(), 0))));
      continue;
    }
    // The same side again: another communicator with the same hash (a program run twice).
    if (half != halves_.end() && half->second.meeting != number)
      Close(members, half->second.meeting, comparison);
    halves_[key] = {.meeting = number, .sends = sends};
    ++meetings_[number].halves;
    meetings_[number].transfers.push_back(key);
  }
  if (meetings_[number].halves == 0) Close(members, number, comparison);
  while (halves_.size() > kMaxHalves) Close(members, meetings_.begin()->first, comparison);
}

uint64_t CallMatcher::Merge(uint64_t one, uint64_t other, size_t most_ranks) {
  if (one == other) return one;
  if (meetings_[one].transfers.size() < meetings_[other].transfers.size()) std::swap(one, other);
  const auto from = meetings_.extract(other);
  Meeting& into = meetings_[one];
  for (const Key& key : from.mapped().transfers) {
    const auto half = halves_.find(key);
    if (half == halves_.end() || half->second.meeting != other) continue;
    half->second.meeting = one;
    into.transfers.push_back(key);
  }
  const Call& call = from.mapped().call;
  into.halves += from.mapped().halves;
  into.one_way = into.one_way || from.mapped().one_way;
  into.call.participants.insert(into.call.participants.end(), call.participants.begin(),
                                call.participants.end());
  into.call.lost.insert(into.call.lost.end(), call.lost.begin(), call.lost.end());
  into.endless = into.endless || from.mapped().endless || into.call.participants.size() > most_ranks ||
                 into.call.lost.size() > most_ranks;
  if (into.endless) into.call = {};
  DropMet(one, into);
  return one;
}

void CallMatcher::DropMet(uint64_t number, Meeting& meeting) const {
  constexpr size_t kFew = 64;
  if (meeting.transfers.size() < kFew || meeting.transfers.size() < 4 * meeting.halves) return;
  std::erase_if(meeting.transfers, [&](const Key& key) {
    const auto half = halves_.find(key);
    return half == halves_.end() || half->second.meeting != number;
  });
}

void CallMatcher::Close(const Members& members, uint64_t number, RankComparison& comparison) {
  auto closed = meetings_.extract(number);
  if (closed.empty()) return;
  Meeting& meeting = closed.mapped();
  for (const Key& key : meeting.transfers) {
    const auto half = halves_.find(key);
    if (half != halves_.end() && half->second.meeting == number) halves_.erase(half);
  }
  Call& call = meeting.call;
  if (meeting.halves > 0 || meeting.endless) return;
  if (call.participants.size() + call.lost.size() < 2) return;  // no other rank took part
  std::set<int32_t> ranks;  // of the communicator: a process may be several
  for (const RankComparison::Participant& p : call.participants) ranks.insert(p.comm_rank);
  // A group on one side may meet several calls on the other, which do not begin together.
  if (ranks.size() != call.participants.size()) return;
  const bool pair = meeting.one_way;
  if (pair && ranks.size() + call.lost.size() != 2) return;
  if (call.participants.size() > 1) {
    comparison.Add(meeting.hash, members, std::move(call.participants), call.lost, 0,
                   pair ? RankComparison::Kind::kPair : RankComparison::Kind::kExchange);
  } else if (!pair) {
    comparison.Skip(call.participants, call.lost);
  }
}

void CallMatcher::CloseOldest(const Members& members, RankComparison& comparison) {
  while (!order_.empty() && (calls_.size() > kMaxWaitingCalls || waiting_ranks_ > MostWaiting(members) ||
                             !calls_.contains(order_.front()))) {
    const auto oldest = calls_.find(order_.front());
    order_.pop_front();
    if (oldest == calls_.end()) continue;
    const uint64_t hash = std::get<0>(oldest->first);
    NoteWhole(hash, false);
    Close(members, oldest->first, oldest->second, comparison);
    CountWaiting(hash, -1, 0);
    calls_.erase(oldest);
  }
}

bool CallMatcher::ManyWait(const Members& members, absl::FunctionRef<bool(uint64_t hash)> may_come) const {
  if (!IsMany(awaited_, members)) return false;
  Waiting awaited;
  for (const auto& [hash, waiting] : waiting_) {
    if (waiting.in_vain || !may_come(hash)) continue;
    awaited.calls += waiting.calls;
    awaited.ranks += waiting.ranks;
  }
  return IsMany(awaited, members);
}

void CallMatcher::CountWaiting(uint64_t hash, int64_t calls, int64_t ranks) {
  Waiting& waiting = waiting_[hash];
  const auto count = [&](Waiting& of) {
    of.calls += static_cast<size_t>(calls);
    of.ranks += static_cast<size_t>(ranks);
  };
  count(waiting);
  waiting_ranks_ += static_cast<size_t>(ranks);
  if (!waiting.in_vain) count(awaited_);
  if (waiting.calls == 0) waiting_.erase(hash);
}

void CallMatcher::NoteWhole(uint64_t hash, bool whole) {
  Waiting& waiting = waiting_[hash];
  if (waiting.in_vain != whole) return;
  waiting.in_vain = !whole;
  if (whole) {
    awaited_.calls += waiting.calls;
    awaited_.ranks += waiting.ranks;
  } else {
    awaited_.calls -= waiting.calls;
    awaited_.ranks -= waiting.ranks;
  }
}

void CallMatcher::Close(const Members& members, const Key& key, Call& call, RankComparison& comparison) {
  CountWaiting(std::get<0>(key), 0, -static_cast<int64_t>(call.participants.size()));
  const size_t heard = call.participants.size() + call.lost.size();
  const size_t ranks = static_cast<size_t>(std::max(call.comm_ranks, 0));
  if (call.participants.size() > 1) {
    comparison.Add(std::get<0>(key), members, std::move(call.participants), call.lost,
                   ranks > heard ? ranks - heard : 0, RankComparison::Kind::kCollective);
  } else if (ranks > 1) {
    comparison.Skip(call.participants, call.lost);
  }
  call.participants.clear();
  call.lost.clear();
  call.present.clear();
}

void CallMatcher::Finish(const Members& members, RankComparison& comparison) {
  for (const Key& key : order_) {
    const auto found = calls_.find(key);
    if (found != calls_.end()) Close(members, key, found->second, comparison);
  }
  calls_.clear();
  order_.clear();
  waiting_.clear();
  waiting_ranks_ = 0;
  awaited_ = {};
  meetings_.clear();
  halves_.clear();
}

}  // namespace gpuprobe::model
