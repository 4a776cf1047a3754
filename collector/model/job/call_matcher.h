// Matches the plans of several ranks that are one call: by communicator hash, sequence number and number of
// the replay; a send and its receive by the ordinal of the transfer and the two ranks.
//
// A call is handed to the comparison when all of its ranks have reported it, or when too many wait. Not
// thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "collector/model/calls/collective_tracker.h"
#include "collector/model/job/rank_comparison.h"
#include "collector/model/process/process_model.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class CallMatcher {
 public:
  // Calls that some of their ranks have not reported yet, and the ranks that have reported them.
  static constexpr size_t kMaxWaitingCalls = 65536;
  static constexpr size_t kMaxWaitingRanks = size_t{1} << 20;

  using Processes = std::vector<std::unique_ptr<ProcessModel>>;

  // `index`: of the process whose plan it is.
  void Add(const Processes& processes, uint32_t index, const SettledPlan& plan, RankComparison& comparison);
  // Hands on whatever waits.
  void Finish(const Processes& processes, RankComparison& comparison);

  // The state names series by their process and place. REQUIRES: the processes are loaded.
  template <typename Archive>
  void Visit(Archive& archive, const Processes& processes);

 private:
  struct Call {
    int32_t comm_ranks = 0;
    std::vector<bool> present;  // by rank of the communicator
    std::vector<RankComparison::Participant> participants;
    std::vector<uint32_t> lost;  // processes that took part, at times that are not known
  };
  // Communicator hash, sequence, replay, 0. For a send and its receive: the ordinal of the transfer instead
  // of the sequence, and the sender's rank in the communicator << 32 | the receiver's.
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;
  // A series is known by its process and its place there.
  using Place = std::pair<uint64_t, uint64_t>;

  // Which call a plan is, which of its ranks reports it, and how many it has.
  struct Identity {
    Key key{};
    size_t rank = 0;
    int32_t ranks = 0;
  };
  static Identity IdentityOf(const ProcessModel& process, const v1::Communicator& comm,
                             const SettledPlan& plan);
  void Close(const Processes& processes, const Key& key, Call& call, RankComparison& comparison);
  // Makes room for others.
  void CloseOldest(const Processes& processes, RankComparison& comparison);

  template <typename Archive>
  void VisitCall(Archive& archive, const Processes& processes, Call& call,
                 absl::FunctionRef<Place(const CollectiveSeries*)> place_of);

  friend StateAccess;

  absl::flat_hash_map<Key, Call> calls_;
  std::deque<Key> order_;
  size_t waiting_ = 0;  // participants in calls_
};

template <typename Archive>
void CallMatcher::Visit(Archive& archive, const Processes& processes) {
  uint64_t calls = calls_.size();
  archive.Members(this, Rebuilt(calls_), order_, waiting_);
  archive(calls);
  if constexpr (Archive::kReads) {
    const auto none = [](const CollectiveSeries*) { return Place{0, 0}; };
    for (; calls > 0 && archive.ok(); --calls) {
      Key key{};
      archive(key);
      VisitCall(archive, processes, calls_[key], none);
    }
  } else {
    absl::flat_hash_map<const CollectiveSeries*, Place> places;
    for (uint64_t p = 0; p < processes.size(); ++p) {
      const auto& all = processes[p]->collectives().series();
      for (uint64_t s = 0; s < all.size(); ++s) places[all[s].get()] = {p, s};
    }
    for (auto& [key, call] : calls_) {
      Key copy = key;
      archive(copy);
      VisitCall(archive, processes, call, [&places](const CollectiveSeries* at) { return places.at(at); });
    }
  }
}

template <typename Archive>
void CallMatcher::VisitCall(Archive& archive, const Processes& processes, Call& call,
                            absl::FunctionRef<Place(const CollectiveSeries*)> place_of) {
  uint64_t participants = call.participants.size();
  archive(call.comm_ranks, call.present, participants, call.lost);
  for (const uint32_t process : call.lost) archive.Require(process < processes.size());
  if constexpr (Archive::kReads) {
    archive.Require(participants <= kMaxWaitingRanks);
    call.participants.resize(archive.ok() ? participants : 0);
  }
  for (RankComparison::Participant& p : call.participants) {
    Place place = place_of(p.series);
    archive(p.process, p.comm_rank, p.start_ns, p.end_ns, p.clock_shift_ns, p.bytes, place);
    archive.Require(p.process < processes.size() && p.start_ns <= p.end_ns);
    if constexpr (Archive::kReads) {
      const auto& [process, series] = place;
      archive.Require(process < processes.size() &&
                      series < processes[process]->collectives().series().size());
      p.series = archive.ok() ? processes[process]->collectives().series()[series].get() : nullptr;
    }
  }
  if (!archive.ok()) call.participants.clear();
}

}  // namespace gpuprobe::model
