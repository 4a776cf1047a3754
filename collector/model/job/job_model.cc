#include "collector/model/job/job_model.h"

namespace gpuprobe::model {

JobModel::JobModel() : names_{""}, name_ids_{{"", 0}} {}

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
  events.collectives.settled = [this, index](const SettledPlan& plan) {
    calls_.Add(processes_, index, plan, comparison_);
  };
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

void JobModel::Finish(bool goes_on) {
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    if (!goes_on) process->EndDelivery();
    process->Finish(goes_on);
  }
  calls_.Finish(processes_, comparison_);
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    for (const auto& series : process->collectives().series())
      series->steady.Finish(process->steps().steady_runs());
  }
  for (uint32_t i = 0; i < processes_.size(); ++i) comparison_.AccountSteps(*processes_[i], i, true);
  comparison_.AlignSteps(processes_);
}

}  // namespace gpuprobe::model
