// Saving a job's model and loading it again: the state outlives the detail of a run whose logs are rotated.
#include "collector/model/state_members.h"

namespace gpuprobe::model {
namespace {

// Raised with every change to what state_members.h or this file visits.
constexpr uint32_t kStateVersion = 30;

}  // namespace

template <typename Archive>
void JobModel::VisitNames(Archive& archive) {
  archive(issued_, names_, comparison_, verdicts_);
  archive.Require(comparison_.blame().size() <= processes_.size() &&
                  comparison_.alignment().IsOf(processes_.size()) &&
                  comparison_.late_steps().IsOf(processes_.size()));
  for (const auto* clocks : {&comparison_.clocks(), &comparison_.pair_clocks()}) {
    for (const auto& [pair, link] : *clocks)
      archive.Require(pair.first < processes_.size() && pair.second < processes_.size());
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

template <typename Archive>
void JobModel::VisitCalls(Archive& archive) {
  uint64_t calls = calls_.size();
  archive(order_, waiting_, calls);
  // A participant's series by process and place in it.
  const auto visit = [&](auto&& index_of, auto&& series_at) {
    const auto one = [&](Call& call) {
      uint64_t participants = call.participants.size();
      archive(call.comm_ranks, call.present, participants, call.lost);
      for (const uint32_t process : call.lost) archive.Require(process < processes_.size());
      if constexpr (Archive::kReads) {
        archive.Require(participants <= (uint64_t{1} << 20));
        call.participants.resize(archive.ok() ? participants : 0);
      }
      for (RankComparison::Participant& p : call.participants) {
        std::pair<uint64_t, uint64_t> place = index_of(p.series);
        archive(p.process, p.comm_rank, p.start_ns, p.end_ns, p.clock_shift_ns, p.bytes, place);
        archive.Require(p.process < processes_.size() && p.start_ns <= p.end_ns);
        p.series = series_at(place);
      }
      if constexpr (Archive::kReads) {
        if (!archive.ok()) call.participants.clear();
      }
    };
    if constexpr (Archive::kReads) {
      for (; calls > 0 && archive.ok(); --calls) {
        Key key{};
        archive(key);
        one(calls_[key]);
      }
    } else {
      for (auto& [key, call] : calls_) {
        Key copy = key;
        archive(copy);
        one(call);
      }
    }
  };
  if constexpr (Archive::kReads) {
    visit(
        [](const CollectiveSeries*) {
          return std::pair<uint64_t, uint64_t>{0, 0};
        },
        [&](const std::pair<uint64_t, uint64_t>& place) -> CollectiveSeries* {
          const auto& [process, series] = place;
          archive.Require(process < processes_.size() &&
                          series < processes_[process]->collectives().series().size());
          return archive.ok() ? processes_[process]->collectives().series()[series].get() : nullptr;
        });
  } else {
    absl::flat_hash_map<const CollectiveSeries*, std::pair<uint64_t, uint64_t>> places;
    absl::flat_hash_map<std::pair<uint64_t, uint64_t>, CollectiveSeries*> series;
    for (uint64_t p = 0; p < processes_.size(); ++p) {
      const auto& all = processes_[p]->collectives().series();
      for (uint64_t s = 0; s < all.size(); ++s) {
        places[all[s].get()] = {p, s};
        series[{p, s}] = all[s].get();
      }
    }
    visit([&](const CollectiveSeries* at) { return places.at(at); },
          [&](const std::pair<uint64_t, uint64_t>& place) { return series.at(place); });
  }
}

std::string JobModel::SaveState() {
  std::string bytes;
  SaveState([&bytes](std::string_view part) { bytes += part; });
  return bytes;
}

void JobModel::SaveState(absl::FunctionRef<void(std::string_view)> part) {
  constexpr size_t kPartBytes = size_t{1} << 20;
  StateWriter archive;
  uint32_t version = kStateVersion;
  uint64_t count = processes_.size();
  archive(version, count);
  for (const auto& process : processes_) {
    v1::Hello hello = process->hello();
    archive(hello, *process);
    if (archive.size() >= kPartBytes) part(archive.Take());
  }
  VisitNames(archive);
  VisitCalls(archive);
  part(archive.Take());
}

absl::Status JobModel::LoadState(std::string_view bytes) {
  processes_.clear();
  calls_.clear();
  order_.clear();
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
  VisitCalls(archive);
  if (archive.ok() && archive.at_end()) return absl::OkStatus();
  calls_.clear();
  order_.clear();
  processes_.clear();
  waiting_ = 0;
  issued_ = {};
  verdicts_ = {};
  comparison_ = {};
  names_ = {""};
  name_ids_ = {{"", 0}};
  return absl::DataLossError("bad totals");
}

}  // namespace gpuprobe::model
