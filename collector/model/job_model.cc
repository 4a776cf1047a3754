#include "collector/model/job_model.h"

#include <algorithm>

#include "proto/nccl_operations.h"

namespace gpuprobe::model {

ProcessModel* JobModel::Find(const v1::Hello& hello) const {
  const v1::Identity& id = hello.identity();
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    const v1::Identity& known = process->identity();
    if (known.host() == id.host() && known.pid() == id.pid() &&
        known.process_start_ns() == id.process_start_ns() &&
        process->hello().instance() == hello.instance()) {
      return process.get();
    }
  }
  return nullptr;
}

ProcessModel& JobModel::Join(const v1::Hello& hello) {
  ProcessModel* known = Find(hello);
  if (known == nullptr) return AddProcess(hello);
  known->Rejoin(hello);
  return *known;
}

ProcessModel& JobModel::AddProcess(const v1::Hello& hello) {
  const auto index = static_cast<uint32_t>(processes_.size());
  const auto self = [this, index]() -> const ProcessModel& { return *processes_[index]; };
  ProcessEvents events;
  events.collectives.issued = [this, self](const CollectiveRecord& call) { OnIssued(self(), call); };
  events.collectives.finished = [this, self](uint32_t comm, uint64_t seq, uint64_t) {
    const v1::Communicator* known = self().FindCommunicator(comm);
    if (known != nullptr) issued_.Finished(known->hash(), seq);
  };
  events.collectives.settled = [this, index](const SettledPlan& plan) { OnPlan(index, plan); };
  events.communicator = [this, index](const v1::Communicator& comm) {
    issued_.Join(comm.hash(), comm.ranks(), comm.rank(), index);
  };
  processes_.push_back(std::make_unique<ProcessModel>(hello, std::move(events)));
  processes_.back()->SetStepMarker(step_marker_);
  return *processes_.back();
}

uint32_t JobModel::Intern(const std::string& name) {
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) return found->second;
  if (names_.size() >= kMaxNames) return 0;
  names_.push_back(name);
  return name_ids_[name] = static_cast<uint32_t>(names_.size() - 1);
}

void JobModel::OnIssued(const ProcessModel& process, const CollectiveRecord& call) {
  const v1::Communicator* comm = process.FindCommunicator(call.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  const IssuedCalls::Signature signature{.op = Intern(process.String(call.op)),
                                         .datatype = Intern(process.String(call.datatype)),
                                         .count = call.count,
                                         .root = call.root};
  issued_.Issued(comm->hash(), comm->rank(), call.seq, signature,
                 {.comm_rank = comm->rank(),
                  .signature = 0,
                  .issue_ns = call.issue_ns,
                  .element_bytes = call.element_bytes,
                  .plan = call.plan});
}

void JobModel::OnPlan(uint32_t index, const SettledPlan& plan) {
  const ProcessModel& process = *processes_[index];
  const v1::Communicator* comm = process.FindCommunicator(plan.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  if (comm->rank() >= IssuedCalls::kMaxRanks) return;
  auto rank = static_cast<size_t>(comm->rank());
  Key key{comm->hash(), plan.seq, plan.replay, 0};
  int32_t ranks = comm->ranks();
  if (plan.pair != 0) {
    const bool sends = nccl::IsSend(process.String(plan.op));
    const auto own = static_cast<uint32_t>(comm->rank());
    const auto peer = static_cast<uint32_t>(plan.peer);
    if (own == peer) return;
    key = {comm->hash(), plan.pair, plan.replay, uint64_t{sends ? own : peer} << 32 | (sends ? peer : own)};
    rank = sends ? 0 : 1;
    ranks = 2;
  }
  auto [it, added] = calls_.try_emplace(key);
  if (added) {
    order_.push_back(key);
  } else if (const auto& present = it->second.present; rank < present.size() && present[rank]) {
    // The same rank again: another communicator with the same hash (a program run twice). What there is
    // belongs to the earlier one.
    Close(key, it->second);
  }
  Call& call = it->second;
  call.comm_ranks = std::max(call.comm_ranks, ranks);
  if (call.present.size() <= rank)
    call.present.resize(std::max<size_t>(rank + 1, std::clamp(ranks, 0, IssuedCalls::kMaxRanks)));
  call.present[rank] = true;
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
    Close(key, call);
    calls_.erase(it);
  }
  while (!order_.empty() && (calls_.size() > kMaxWaitingCalls || waiting_ > kMaxWaitingRanks ||
                             !calls_.contains(order_.front()))) {
    const auto oldest = calls_.find(order_.front());
    order_.pop_front();
    if (oldest == calls_.end()) continue;
    Close(oldest->first, oldest->second);
    calls_.erase(oldest);
  }
}

void JobModel::Close(const Key& key, Call& call) {
  waiting_ -= call.participants.size();
  const bool pair = std::get<3>(key) != 0;
  const size_t heard = call.participants.size() + call.lost.size();
  const size_t ranks = static_cast<size_t>(std::max(call.comm_ranks, 0));
  if (call.participants.size() > 1) {
    comparison_.Add(std::get<0>(key), processes_, call.participants, call.lost,
                    ranks > heard ? ranks - heard : 0, pair);
  } else if (!pair && ranks > 1) {
    comparison_.Skip(call.participants, call.lost);
  }
  call.participants.clear();
  call.lost.clear();
  call.present.clear();
}

void JobModel::Finish(bool goes_on) {
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    process->MarkCutOff();
    process->Finish(goes_on);
  }
  for (const Key& key : order_) {
    const auto found = calls_.find(key);
    if (found != calls_.end()) Close(key, found->second);
  }
  calls_.clear();
  order_.clear();
  waiting_ = 0;
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    for (const auto& series : process->collectives().series())
      series->steady.Finish(process->steps().steady_runs());
  }
  for (uint32_t i = 0; i < processes_.size(); ++i) comparison_.AccountSteps(*processes_[i], i, true);
  comparison_.AlignSteps(processes_);
}

}  // namespace gpuprobe::model
