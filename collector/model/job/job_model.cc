#include "collector/model/job/job_model.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace gpuprobe::model {

JobModel::JobModel() : names_{""}, name_ids_{{"", 0}} {}

JobModel::ProcessKey JobModel::KeyOf(const v1::Hello& hello) {
  const v1::Identity& id = hello.identity();
  return {id.host(), id.pid(), id.process_start_ns(), hello.instance()};
}

ProcessModel* JobModel::Find(const v1::Hello& hello) const {
  const auto found = by_key_.find(KeyOf(hello));
  return found == by_key_.end() ? nullptr : found->second;
}

bool JobModel::LeavesStatesOut() const {
  return !processes_.empty() && processes_.front()->hello().rolled_up() &&
         processes_.front()->identity().world_size() > kMostInDetail;
}

std::vector<size_t> JobModel::Behind(size_t most) const {
  std::vector<size_t> all;
  for (const auto& [hash, comm] : issued_.communicators()) {
    uint64_t newest = 0;
    for (const IssuedCalls::RankState& rank : comm.ranks) newest = std::max(newest, rank.next_seq);
    std::vector<size_t> behind;
    for (const IssuedCalls::RankState& rank : comm.ranks) {
      if (rank.process != IssuedCalls::kNoProcess && rank.next_seq < newest) behind.push_back(rank.process);
    }
    // Where many are, it says nothing about one of them.
    if (all.size() + behind.size() <= most) all.insert(all.end(), behind.begin(), behind.end());
  }
  return all;
}

std::vector<ProcessModel*> JobModel::WorthDetail() const {
  constexpr size_t kMostBlamed = 64;
  constexpr size_t kMostBehind = 64;
  std::vector<uint64_t> caused_ns(processes_.size());
  for (const Member& member : members_) {
    if (member.number < comparison_.blame().size())
      caused_ns[member.index] += comparison_.blame()[member.number].caused_ns;
  }
  // By rank, so that it does not depend on who came first.
  std::vector<size_t> by_rank(processes_.size());
  std::iota(by_rank.begin(), by_rank.end(), size_t{0});
  std::stable_sort(by_rank.begin(), by_rank.end(), [this](size_t a, size_t b) {
    return processes_[a]->identity().rank() < processes_[b]->identity().rank();
  });
  std::vector<size_t> order = by_rank;
  const size_t blamed = std::min(kMostBlamed, order.size());
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return caused_ns[a] > caused_ns[b]; });
  order.resize(blamed);
  const std::vector<size_t> behind = Behind(kMostBehind);
  order.insert(order.end(), behind.begin(), behind.end());
  constexpr size_t kOthers = kMostInDetail - kMostBlamed - kMostBehind;
  const size_t step = (processes_.size() + kOthers - 1) / kOthers;
  for (size_t i = 0; i < processes_.size(); i += step) order.push_back(by_rank[i]);
  std::sort(order.begin(), order.end());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<ProcessModel*> worth;
  worth.reserve(order.size());
  for (const size_t i : order) worth.push_back(processes_[i].get());
  return worth;
}

bool JobModel::StepsWereRevised() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const auto& process) { return !process->device_steps().Learned().empty(); });
}

std::optional<uint64_t> JobModel::CommonWarmup() const {
  uint64_t shortest = UINT64_MAX;
  uint64_t longest = 0;
  uint64_t fewest = UINT64_MAX;
  for (const Member& member : ReportedMembers()) {
    const StepTracker& steps = member.steps();
    if (steps.count() == 0) continue;
    shortest = std::min(shortest, steps.warmup_count());
    longest = std::max(longest, steps.warmup_count());
    fewest = std::min(fewest, steps.count());
  }
  if (shortest >= longest || fewest < 2 * longest) return std::nullopt;
  // In a long run the difference is not worth another replay.
  constexpr uint64_t kOneStepIn = 100;
  if ((longest - shortest) * kOneStepIn < fewest) return std::nullopt;
  return longest;
}

bool JobModel::LearnedOfSteps() const {
  return StepsWereRevised() || (!known_warmup_.has_value() && CommonWarmup().has_value());
}

void JobModel::BeginAgain() {
  known_warmup_ = StepsWereRevised() ? std::nullopt : CommonWarmup();
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    if (DeviceSteps::Definitions learned = process->device_steps().Learned(); !learned.empty())
      known_steps_[KeyOf(process->hello())] = std::move(learned);
  }
  Clear();
}

void JobModel::Clear() {
  JobModel empty;
  empty.step_marker_ = step_marker_;
  empty.keeps_placed_ = keeps_placed_;
  empty.rolls_up_ = rolls_up_;
  empty.rolled_up_ = std::move(rolled_up_);
  empty.known_steps_ = std::move(known_steps_);
  empty.known_warmup_ = known_warmup_;
  *this = std::move(empty);
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
    calls_.Add(members_, MemberOf(index, plan.device), plan, comparison_);
  };
  events.applied = [this] { comparison_.CountWaiting(members_); };
  events.communicator = [this, index](const v1::Communicator& comm) {
    issued_.Join(comm.hash(), comm.ranks(), comm.rank(), index);
    trace_.Join(PlaceOf(index, comm));
  };
  events.traced_step = [this, index](const TracedStepRecord& step) { trace_.On(index, step); };
  events.traced_call = [this, index, self](const v1::Communicator& comm, const TracedCallRecord& call) {
    trace_.On(PlaceOf(index, comm), call, Intern(self().String(call.op), last_op_));
  };
  events.call_time = [this, index](const v1::Communicator& comm, const CallTimeRecord& time) {
    trace_.On(PlaceOf(index, comm), time);
  };
  events.state = [this, index](const v1::ProcessState& state) {
    if (state.whole().empty() || !LeavesStatesOut()) LoadProcess(*processes_[index], state);
  };
  processes_.push_back(std::make_unique<ProcessModel>(hello, std::move(events)));
  by_key_[KeyOf(hello)] = processes_.back().get();
  processes_.back()->SetStepMarker(step_marker_);
  if (keeps_placed_) processes_.back()->KeepPlaced();
  if (rolls_up_) {
    const auto done = rolled_up_.find(KeyOf(hello));
    processes_.back()->KeepRollUp(done == rolled_up_.end() ? 0 : done->second);
  }
  if (const auto known = known_steps_.find(KeyOf(hello)); known != known_steps_.end())
    processes_.back()->KnowSteps(known->second);
  if (known_warmup_.has_value()) processes_.back()->KnowWarmup(*known_warmup_);
  AddMember(index, 0);
  return *processes_.back();
}

CallTrace::Place JobModel::PlaceOf(uint32_t process, const v1::Communicator& comm) const {
  const uint64_t host = std::hash<std::string>{}(processes_[process]->identity().host());
  return {.process = process, .hash = comm.hash(), .rank = comm.rank(), .ranks = comm.ranks(), .host = host};
}

void JobModel::AddMember(uint32_t process, uint32_t place) {
  members_of_.resize(processes_.size());
  members_of_[process].push_back(static_cast<uint32_t>(members_.size()));
  members_.push_back({.process = processes_[process].get(),
                      .index = process,
                      .place = place,
                      .number = static_cast<uint32_t>(members_.size()),
                      .comparison = &comparison_});
}

Members JobModel::ReportedMembers() const {
  Members reported;
  for (const auto& numbers : members_of_) {
    const auto first = static_cast<ptrdiff_t>(reported.size());
    for (const uint32_t number : numbers) {
      if (members_[number].IsReported()) reported.push_back(members_[number]);
    }
    std::sort(reported.begin() + first, reported.end(),
              [](const Member& a, const Member& b) { return a.device() < b.device(); });
  }
  return reported;
}

uint32_t JobModel::MemberOf(uint32_t process, size_t place) {
  while (members_of_[process].size() <= place)
    AddMember(process, static_cast<uint32_t>(members_of_[process].size()));
  return members_of_[process][place];
}

uint32_t JobModel::Intern(const std::string& name, uint32_t& before) {
  if (before < names_.size() && names_[before] == name) return before;
  const auto found = name_ids_.find(name);
  if (found != name_ids_.end()) return before = found->second;
  if (names_.size() >= kMaxNames) return 0;
  names_.push_back(name);
  return name_ids_[name] = before = static_cast<uint32_t>(names_.size() - 1);
}

void JobModel::OnIssued(const ProcessModel& process, const CollectiveRecord& call) {
  const v1::Communicator* comm = process.FindCommunicator(call.comm);
  if (comm == nullptr || comm->hash() == 0 || comm->rank() < 0) return;
  const IssuedCalls::Signature signature{.op = Intern(process.String(call.op), last_op_),
                                         .datatype = Intern(process.String(call.datatype), last_datatype_),
                                         .count = call.count,
                                         .root = call.root};
  issued_.Issued(comm->hash(), comm->rank(), call.seq, signature,
                 {.comm_rank = comm->rank(),
                  .signature = 0,
                  .issue_ns = call.issue_ns,
                  .element_bytes = call.element_bytes,
                  .plan = call.plan});
}

bool JobModel::ManyCallsWait(bool ranks_come) const {
  return calls_.ManyWait(members_, [&](uint64_t hash) {
    const auto comm = issued_.communicators().find(hash);
    return ranks_come ||
           (comm != issued_.communicators().end() && comm->second.heard >= comm->second.ranks.size());
  });
}

void JobModel::Finish(bool goes_on) {
  for (const std::unique_ptr<ProcessModel>& process : processes_) {
    if (!goes_on) process->EndDelivery();
    process->Finish(goes_on);
  }
  for (uint32_t i = 0; i < processes_.size(); ++i) MemberOf(i, processes_[i]->device_steps().size() - 1);
  calls_.Finish(members_, comparison_);
  comparison_.CountWaiting(members_);
  comparison_.FinishSeries(members_);
  for (uint32_t i = 0; i < members_.size(); ++i) comparison_.AccountSteps(members_[i], i, true);
  comparison_.AlignSteps(members_);
}

}  // namespace gpuprobe::model
