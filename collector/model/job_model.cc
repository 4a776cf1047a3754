#include "collector/model/job_model.h"

#include <algorithm>

namespace gpuprobe::model {

ProcessModel& JobModel::Join(const v1::Hello& hello) {
  const v1::Identity& id = hello.identity();
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    const v1::Identity& known = process->identity();
    if (known.host() == id.host() && known.pid() == id.pid() &&
        known.process_start_ns() == id.process_start_ns()) {
      process->Rejoin(hello);
      return *process;
    }
  }
  return AddProcess(hello);
}

ProcessModel& JobModel::AddProcess(const v1::Hello& hello) {
  const size_t index = processes_.size();
  processes_.push_back(std::make_unique<ProcessModel>(
      hello, [this, index](const SettledPlan& plan) { OnPlan(*processes_[index], plan); }));
  return *processes_.back();
}

void JobModel::OnPlan(const ProcessModel& process, const SettledPlan& plan) {
  const v1::Communicator* comm = process.FindCommunicator(plan.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  const Key key{comm->hash(), plan.seq, plan.replay};
  const auto [it, added] = calls_.try_emplace(key);
  Call& call = it->second;
  if (added) {
    order_.push_back(key);
  } else if (std::any_of(call.participants.begin(), call.participants.end(),
                         [&](const Participant& p) { return p.comm_rank == comm->rank(); })) {
    // The same rank again: another communicator with the same hash (a program run twice). What there is
    // belongs to the earlier one.
    Compare(call);
    call.participants.clear();
  }
  call.comm_ranks = std::max(call.comm_ranks, comm->ranks());
  call.participants.push_back({comm->rank(), plan.duration_ns, plan.bytes, plan.series});
  if (static_cast<int32_t>(call.participants.size()) >= call.comm_ranks && call.comm_ranks > 0) {
    Compare(call);
    call.participants.clear();
  }
  while (order_.size() > kMaxWaitingCalls) {
    const auto oldest = calls_.find(order_.front());
    order_.pop_front();
    if (oldest == calls_.end()) continue;
    Compare(oldest->second);
    calls_.erase(oldest);
  }
}

void JobModel::Compare(const Call& call) {
  if (call.participants.size() < 2) return;
  uint64_t shortest = UINT64_MAX;
  for (const Participant& p : call.participants) shortest = std::min(shortest, p.duration_ns);
  for (const Participant& p : call.participants) {
    ++p.series->compared_plans;
    p.series->wait_ns += p.duration_ns - shortest;
    p.series->transfer_ns += shortest;
    p.series->transfer_bytes += p.bytes;
    p.series->compared_ranks_sum += call.participants.size();
  }
}

void JobModel::Finish() {
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    process->MarkCutOff();
    process->Finish();
  }
  for (const Key& key : order_) {
    const auto found = calls_.find(key);
    if (found != calls_.end()) Compare(found->second);
  }
  calls_.clear();
  order_.clear();
}

}  // namespace gpuprobe::model
