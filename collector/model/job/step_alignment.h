// Matches the steps of different ranks.
//
// Each rank counts its own steps: one that missed a step, or began to report later than the others, is behind
// from then on. Ranks of one collective are in the same step, whatever number each of them gives it: the
// highest of these is the step's number, and the other ranks are behind by the difference. One call in kEvery
// of a communicator is looked at, once the steps that it was in are complete. Memory: kMaxWaiting calls,
// kMaxChanges for each rank. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/job/member.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class StepAlignment {
 public:
  static constexpr uint32_t kEvery = 4;
  static constexpr size_t kRanksForEach =
      256;  // with more than kEvery times as many, one call in ranks / this
  static constexpr size_t kMaxWaiting = 256;
  static constexpr size_t kMaxChanges = 64;
  static constexpr size_t kMaxCommunicators = 4096;

  // A collective of the communicator `hash` ended then: (member, end_ns) of each.
  using Ends = std::vector<std::pair<uint32_t, uint64_t>>;
  // Whether to note this call of so many ranks.
  bool Wants(uint64_t hash, size_t ranks);
  void Note(Ends ends) { waiting_.push_back(std::move(ends)); }
  // Looks at the calls whose steps are complete; `all`: at all of them.
  void Settle(const Members& members, bool all);

  // Offset to add to the index of this step of the member, so that it is the same on all ranks.
  int64_t Behind(uint32_t member, uint64_t index) const;
  // Whether it names no other members.
  bool IsOf(size_t members) const;

 private:
  struct Rank {
    std::vector<std::pair<uint64_t, int64_t>> changes;  // from which index on, by how much
    uint64_t seen_from = 0;  // the last call implied another offset: from this index on,
    int64_t seen = 0;        // this one
    bool doubted = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, changes, seen_from, seen, doubted);
    }
  };
  void Look(const Members& members, const Ends& ends);
  void Say(Rank& rank, uint64_t index, int64_t behind);

  absl::flat_hash_map<uint64_t, uint32_t> calls_;  // by communicator
  std::deque<Ends> waiting_;
  std::vector<Rank> ranks_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, calls_, waiting_, ranks_);
  }
};

}  // namespace gpuprobe::model
