// Saving a job's model and loading it again: the state outlives the detail of a run whose logs are rotated.
#include <algorithm>
#include <utility>

#include "collector/model/job/job_model.h"
#include "collector/model/state/archive.h"
#include "collector/model/state/layout.h"
#include "proto/limits.h"

namespace gpuprobe::model {

uint32_t JobModel::StateVersion() {
  static const uint32_t kVersion = [] {
    JobModel job;
    job.Join(v1::Hello());
    StateLayout layout;
    job.Visit(layout, [] {});
    return layout.version();
  }();
  return kVersion;
}

template <typename Archive>
void JobModel::Visit(Archive& archive, absl::FunctionRef<void()> after_process) {
  // Rebuilt: the settings, what replays learned, and what the functions below visit.
  archive.Members(this,
                  Rebuilt(step_marker_, keeps_placed_, rolls_up_, rolled_up_, unread_hosts_, known_steps_,
                          known_warmup_, processes_, by_key_, members_, members_of_, calls_, name_ids_,
                          last_op_, last_datatype_, state_bytes_),
                  issued_, names_, comparison_, verdicts_, trace_);
  VisitProcesses(archive, after_process);
  VisitMembers(archive);
  calls_.Visit(archive, members_);
  if constexpr (Archive::kReads) {
    archive.Require(archive.ok() && IsConsistent());
    name_ids_.clear();
    for (size_t i = 0; i < names_.size(); ++i) name_ids_[names_[i]] = static_cast<uint32_t>(i);
  }
}

template <typename Archive>
void JobModel::VisitProcesses(Archive& archive, absl::FunctionRef<void()> after_process) {
  uint64_t count = processes_.size();
  archive(count);
  for (uint64_t i = 0; i < count && archive.ok(); ++i) {
    v1::Hello hello;
    if constexpr (!Archive::kReads) hello = processes_[i]->hello();
    archive(hello);
    if (!archive.ok()) return;
    if constexpr (Archive::kReads) AddProcess(hello);
    archive(*processes_[i]);
    after_process();
  }
}

template <typename Archive>
void JobModel::VisitMembers(Archive& archive) {
  std::vector<std::pair<uint32_t, uint32_t>> members;  // process, place
  for (const Member& member : members_) members.emplace_back(member.index, member.place);
  archive(members);
  if constexpr (Archive::kReads) {
    members_.clear();
    members_of_.assign(processes_.size(), {});
    for (const auto& [process, place] : members) {
      archive.Require(process < processes_.size());
      if (!archive.ok()) return;
      archive.Require(place == members_of_[process].size() &&
                      place < processes_[process]->device_steps().size());
      if (!archive.ok()) return;
      AddMember(process, place);
    }
    for (const auto& known : members_of_) archive.Require(!known.empty());
  }
}

bool JobModel::IsConsistent() const {
  const auto all = [](const auto& each, const auto& is) { return std::all_of(each.begin(), each.end(), is); };
  const auto names_known = [&](const IssuedCalls::Call& call) {
    return all(call.signatures, [&](const IssuedCalls::Signature& s) {
      return s.op < names_.size() && s.datatype < names_.size();
    });
  };
  for (const auto* clocks : {&comparison_.clocks(), &comparison_.pair_clocks()}) {
    for (const auto& [pair, link] : *clocks) {
      if (pair.first >= processes_.size() || pair.second >= processes_.size() || link.Windows().empty())
        return false;
    }
  }
  const auto known = [&](const std::pair<const uint64_t, IssuedCalls::Communicator>& each) {
    const std::vector<IssuedCalls::RankState>& ranks = each.second.ranks;
    const auto issuer_known = [&ranks](const IssuedCalls::Issue& issue) {
      return issue.comm_rank >= 0 && static_cast<size_t>(issue.comm_rank) < ranks.size() &&
             ranks[static_cast<size_t>(issue.comm_rank)].process != IssuedCalls::kNoProcess;
    };
    return all(ranks,
               [&](const IssuedCalls::RankState& rank) {
                 return rank.process == IssuedCalls::kNoProcess || rank.process < processes_.size();
               }) &&
           all(each.second.calls, [&](const IssuedCalls::Call& call) {
             return names_known(call) && all(call.issues, issuer_known);
           });
  };
  const auto mismatch_known = [&](const IssuedCalls::Mismatched& m) { return names_known(m.call); };
  for (const IssuedCalls* calls : {&issued_, &trace_.calls()}) {
    if (!all(calls->communicators(), known) || !all(calls->Mismatches(), mismatch_known)) return false;
  }
  return !names_.empty() && trace_.IsOf(processes_.size()) && comparison_.blame().size() <= members_.size() &&
         comparison_.alignment().IsOf(members_.size()) && comparison_.late_steps().IsOf(members_.size());
}

v1::Batch JobModel::RollUp(ProcessModel& process) const {
  v1::Batch out = process.TakeRollUp();
  v1::ProcessState& state = *out.mutable_process_state();
  state.set_version(StateVersion());
  StateWriter archive;
  process.VisitLive(archive);
  state.set_live(archive.Take());
  return out;
}

v1::Batch JobModel::WholeState(ProcessModel& process) const {
  constexpr size_t kMostBytes = wire::kMaxFrameBytes / 2;
  v1::Batch out;
  StateWriter archive;
  archive(process);
  if (archive.size() >= kMostBytes) return out;
  v1::ProcessState& state = *out.mutable_process_state();
  state.set_version(StateVersion());
  state.set_whole(archive.Take());
  return out;
}

void JobModel::LoadProcess(ProcessModel& process, const v1::ProcessState& state) {
  const std::string& host = process.identity().host();
  if (state.version() != StateVersion()) {
    unread_hosts_.insert(host);
    return;
  }
  const bool whole = !state.whole().empty();
  const auto read = [&](ProcessModel& into) {
    StateReader archive(whole ? state.whole() : state.live());
    if (whole) {
      archive(into);
    } else {
      into.VisitLive(archive);
    }
    return archive.ok() && archive.at_end();
  };
  // Bytes that break off must not leave half a process, and the job knows its series and devices by number.
  ProcessModel trial(process.hello(), {});
  const bool good =
      read(trial) &&
      (!whole || (trial.collectives().series().size() >= process.collectives().series().size() &&
                  trial.device_steps().size() >= process.device_steps().size()));
  if (good && whole) process.BeginAnew();
  if (!good || !read(process)) unread_hosts_.insert(host);
}

void JobModel::LoadDetail(ProcessModel& process, const std::vector<v1::Batch>& roll_ups) {
  if (roll_ups.empty()) return;
  ProcessEvents muted;  // the job has got these rows
  muted.state = [&](const v1::ProcessState& state) { LoadProcess(process, state); };
  std::swap(process.events_, muted);
  LoadProcess(process, roll_ups.front().process_state());
  // Rows that were read before are good.
  for (size_t i = 1; i < roll_ups.size(); ++i) process.Apply(roll_ups[i]).IgnoreError();
  std::swap(process.events_, muted);
}

std::string JobModel::SaveState() {
  std::string bytes;
  bytes.reserve(state_bytes_ + state_bytes_ / 8);
  SaveState([&bytes](std::string_view part) { bytes += part; });
  state_bytes_ = bytes.size();
  return bytes;
}

void JobModel::SaveState(absl::FunctionRef<void(std::string_view)> part) {
  constexpr size_t kPartBytes = size_t{1} << 20;
  StateWriter archive;
  uint32_t version = StateVersion();
  archive(version);
  Visit(archive, [&] {
    if (archive.size() >= kPartBytes) part(archive.Take());
  });
  part(archive.Take());
}

absl::Status JobModel::LoadState(std::string_view bytes) {
  Clear();
  StateReader archive(bytes);
  uint32_t version = 0;
  archive(version);
  if (archive.ok() && version != StateVersion()) {
    return absl::DataLossError("totals of another release");
  }
  Visit(archive, [] {});
  if (archive.ok() && archive.at_end()) return absl::OkStatus();
  Clear();
  return absl::DataLossError("bad totals");
}

}  // namespace gpuprobe::model
