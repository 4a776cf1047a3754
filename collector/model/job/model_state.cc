// Saving a job's model and loading it again: the state outlives the detail of a run whose logs are rotated.
#include "collector/model/job/job_model.h"
#include "collector/model/state/archive.h"

namespace gpuprobe::model {
namespace {

// Raised with every change to what a Visit saves.
constexpr uint32_t kStateVersion = 35;

}  // namespace

template <typename Archive>
void JobModel::VisitNames(Archive& archive) {
  archive(issued_, names_, comparison_, verdicts_);
  archive.Require(comparison_.blame().size() <= processes_.size() &&
                  comparison_.alignment().IsOf(processes_.size()) &&
                  comparison_.late_steps().IsOf(processes_.size()));
  for (const auto* clocks : {&comparison_.clocks(), &comparison_.pair_clocks()}) {
    for (const auto& [pair, link] : *clocks)
      archive.Require(pair.first < processes_.size() && pair.second < processes_.size() &&
                      !link.Windows().empty());
  }
  if constexpr (Archive::kReads) {
    archive.Require(!names_.empty());
    name_ids_.clear();
    for (size_t i = 0; i < names_.size(); ++i) name_ids_[names_[i]] = static_cast<uint32_t>(i);
    const auto known = [this, &archive](const IssuedCalls::Call& call) {
      for (const IssuedCalls::Signature& s : call.signatures)
        archive.Require(s.op < names_.size() && s.datatype < names_.size());
    };
    for (const auto& [hash, comm] : issued_.communicators()) {
      for (const IssuedCalls::Call& call : comm.calls) known(call);
      for (const IssuedCalls::RankState& rank : comm.ranks)
        archive.Require(rank.process == IssuedCalls::kNoProcess || rank.process < processes_.size());
      for (const IssuedCalls::Call& call : comm.calls) {
        for (const IssuedCalls::Issue& issue : call.issues)
          archive.Require(issue.comm_rank >= 0 && static_cast<size_t>(issue.comm_rank) < comm.ranks.size() &&
                          comm.ranks[static_cast<size_t>(issue.comm_rank)].process !=
                              IssuedCalls::kNoProcess);
      }
    }
    for (const IssuedCalls::Mismatched& m : issued_.Mismatches()) known(m.call);
  }
}

std::string JobModel::SaveState() {
  StateWriter archive(state_bytes_ + state_bytes_ / 8);
  Save(archive, [] {});
  state_bytes_ = archive.size();
  return archive.Take();
}

void JobModel::SaveState(absl::FunctionRef<void(std::string_view)> part) {
  constexpr size_t kPartBytes = size_t{1} << 20;
  StateWriter archive;
  Save(archive, [&] {
    if (archive.size() >= kPartBytes) part(archive.Take());
  });
  part(archive.Take());
}

void JobModel::Save(StateWriter& archive, absl::FunctionRef<void()> after_process) {
  uint32_t version = kStateVersion;
  uint64_t count = processes_.size();
  archive(version, count);
  for (const auto& process : processes_) {
    v1::Hello hello = process->hello();
    archive(hello, *process);
    after_process();
  }
  VisitNames(archive);
  calls_.Visit(archive, processes_);
}

absl::Status JobModel::LoadState(std::string_view bytes) {
  processes_.clear();
  calls_ = {};
  issued_ = {};
  verdicts_ = {};
  comparison_ = {};
  StateReader archive(bytes);
  uint32_t version = 0;
  uint64_t count = 0;
  archive(version, count);
  if (archive.ok() && version != kStateVersion) {
    return absl::DataLossError("totals of another release");
  }
  for (; count > 0 && archive.ok(); --count) {
    v1::Hello hello;
    archive(hello);
    if (archive.ok()) archive(AddProcess(hello));
  }
  VisitNames(archive);
  calls_.Visit(archive, processes_);
  if (archive.ok() && archive.at_end()) return absl::OkStatus();
  calls_ = {};
  processes_.clear();
  issued_ = {};
  verdicts_ = {};
  comparison_ = {};
  names_ = {""};
  name_ids_ = {{"", 0}};
  return absl::DataLossError("bad totals");
}

}  // namespace gpuprobe::model
