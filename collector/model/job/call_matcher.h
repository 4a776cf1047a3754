// Matches the plans of several ranks that are one call: by communicator hash, sequence number and number of
// the replay; a send and its receive by the ordinal of the transfer and the two ranks.
//
// Plans of sends and receives that meet form one call, however many ranks that are. Example: each of four
// ranks passes a block to the next in a group {send to next, receive from previous}. Each plan meets two
// others, so the four are one call, an exchange. If one rank's plan is a send by itself and the other's its
// receive, they are a pair. A pipeline has such pairs, and may send forward and receive backward in one
// group: a group that a rank issues after it has sent or received alone on the same communicator does not
// count as an exchange. Groups that each answer an earlier one and start a later one form an endless chain.
// As soon as a rank would be in the chain twice, it is not one call, and only the transfers that are still
// open are kept.
//
// A call is handed to the comparison when all of its ranks have reported it; a collective also when too many
// wait. Not thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "collector/model/calls/collective_tracker.h"
#include "collector/model/job/member.h"
#include "collector/model/job/rank_comparison.h"
#include "collector/model/process/process_model.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class CallMatcher {
 public:
  // Calls that some of their ranks have not reported yet, and the ranks that have reported them: in a large
  // job, what all ranks call in some steps.
  static constexpr size_t kMaxWaitingCalls = 65536;
  static constexpr size_t kMaxWaitingRanks = size_t{1} << 20;
  static constexpr size_t kMaxWaitingOfAll = 768;  // calls of all ranks
  // Transfers of which only one side was reported.
  static constexpr size_t kMaxHalves = size_t{1} << 19;

  // `number`: of the member whose plan it is.
  void Add(const Members& members, uint32_t number, const SettledPlan& plan, RankComparison& comparison);
  // Passes all calls that still wait to the comparison.
  void Finish(const Members& members, RankComparison& comparison);
  // A third of what may wait does, for ranks of which more may come: of communicators for which `may_come`,
  // and not of one that has had to give up waiting.
  bool ManyWait(const Members& members, absl::FunctionRef<bool(uint64_t hash)> may_come) const;

  // REQUIRES: the members are loaded.
  template <typename Archive>
  void Visit(Archive& archive, const Members& members);

 private:
  struct Call {
    int32_t comm_ranks = 0;
    std::vector<bool> present;  // by rank of the communicator
    std::vector<RankComparison::Participant> participants;
    std::vector<uint32_t> lost;  // members that took part, at times that are not known
  };
  struct Waiting {
    size_t calls = 0;
    size_t ranks = 0;  // participants in them
    bool in_vain = false;
  };
  // Communicator hash, sequence, replay, 0. For a send and its receive: the ordinal of the transfer instead
  // of the sequence, and the sender's rank in the communicator << 32 | the receiver's.
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;

  // Plans of sends and receives that meet each other so far.
  struct Meeting {
    Call call;
    uint64_t hash = 0;           // of the communicator
    std::vector<Key> transfers;  // all that only one side reported, and some that both did
    uint64_t halves = 0;         // of these, that only one side reported
    bool one_way = false;        // some rank had sent or received alone before, or does here
    bool endless = false;        // some rank is in it twice, so it is not compared and keeps no participants

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, Rebuilt(call), hash, transfers, halves, one_way, endless);
    }
  };
  struct Half {
    uint64_t meeting = 0;
    bool sends = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, meeting, sends);
    }
  };
  void AddTransfers(const Members& members, uint32_t number, const v1::Communicator& comm,
                    const SettledPlan& plan, RankComparison& comparison);
  // Notes the shape of the plan's sends and receives. True if it only sends or only receives.
  static bool AddShape(const ProcessModel& process, const v1::Communicator& comm, const SettledPlan& plan);
  // Returns the number of the merged meeting.
  uint64_t Merge(uint64_t one, uint64_t other, size_t most_ranks);
  // Forgets the meeting's transfers that both sides reported, once they are most of its transfers.
  void DropMet(uint64_t number, Meeting& meeting) const;
  void Close(const Members& members, uint64_t number, RankComparison& comparison);
  static void AddRank(uint32_t member, const v1::Communicator& comm, const SettledPlan& plan, Call& call);
  void Close(const Members& members, const Key& key, Call& call, RankComparison& comparison);
  static bool IsMany(const Waiting& waiting, const Members& members) {
    return waiting.ranks > MostWaiting(members) / 3 || waiting.calls > kMaxWaitingCalls / 3;
  }
  static size_t MostWaiting(const Members& members) {
    return std::max(kMaxWaitingRanks, members.size() * kMaxWaitingOfAll);
  }
  // Makes room for others.
  void CloseOldest(const Members& members, RankComparison& comparison);
  // More calls of the communicator wait, and more ranks in them, or fewer.
  void CountWaiting(uint64_t hash, int64_t calls, int64_t ranks);
  // Whether its newest call to be over had all ranks.
  void NoteWhole(uint64_t hash, bool whole);

  template <typename Archive>
  void VisitCall(Archive& archive, const Members& members, Call& call);

  friend StateAccess;

  absl::flat_hash_map<Key, Call> calls_;
  std::deque<Key> order_;
  absl::flat_hash_map<uint64_t, Waiting> waiting_;  // by communicator
  size_t waiting_ranks_ = 0;                        // in all of them
  Waiting awaited_;                                 // in those that do not wait in vain
  std::map<uint64_t, Meeting> meetings_;            // by number, the oldest first
  absl::flat_hash_map<Key, Half> halves_;
  uint64_t next_meeting_ = 0;
  // Members, and communicators on which they have sent or received alone.
  std::map<std::pair<uint32_t, uint64_t>, uint8_t> one_way_;
};

template <typename Archive>
void CallMatcher::Visit(Archive& archive, const Members& members) {
  uint64_t calls = calls_.size();
  archive.Members(this, Rebuilt(calls_, waiting_, waiting_ranks_, awaited_), order_, meetings_, halves_,
                  next_meeting_, one_way_);
  for (const auto& [key, half] : halves_) archive.Require(meetings_.contains(half.meeting));
  archive(calls);
  if constexpr (Archive::kReads) {
    for (; calls > 0 && archive.ok(); --calls) {
      Key key{};
      archive(key);
      const auto [at, added] = calls_.try_emplace(key);
      archive.Require(added);
      Call& call = at->second;
      VisitCall(archive, members, call);
      CountWaiting(std::get<0>(key), 1, static_cast<int64_t>(call.participants.size()));
    }
  } else {
    for (auto& [key, call] : calls_) {
      Key copy = key;
      archive(copy);
      VisitCall(archive, members, call);
    }
    if constexpr (Archive::kDescribes) {
      Key key{};
      archive(key);
      Call call;
      call.participants.resize(1);
      VisitCall(archive, members, call);
    }
  }
  for (auto& [number, meeting] : meetings_) VisitCall(archive, members, meeting.call);
}

template <typename Archive>
void CallMatcher::VisitCall(Archive& archive, const Members& members, Call& call) {
  archive.Members(&call, call.comm_ranks, call.present, call.participants, call.lost);
  for (const uint32_t member : call.lost) archive.Require(member < members.size());
  archive.Require(call.participants.size() <= kMaxWaitingRanks);
  for (const RankComparison::Participant& p : call.participants) {
    archive.Require(p.member < members.size() && p.start_ns <= p.end_ns);
    if (Archive::kReads && archive.ok())
      archive.Require(p.series < members[p.member].process->collectives().series().size());
  }
  if (!archive.ok()) call.participants.clear();
}

}  // namespace gpuprobe::model
