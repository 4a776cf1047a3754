// Length of the union of half-open time intervals that arrive in any order, in bounded memory.
//
// "Busy" means this length everywhere: for a device, a copy direction, the GPU work launched in a range.
// Intervals that overlap or touch are merged; when more than `limit` disjoint ones are held, the older half
// is summed up and forgotten. An interval that comes so late that it reaches into the forgotten part is cut
// there: the sum may then be too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class IntervalUnion {
 public:
  static constexpr size_t kDefaultLimit = 8192;

  explicit IntervalUnion(size_t limit = kDefaultLimit) : limit_(limit) {}

  // Empty and reversed intervals are ignored.
  void Add(uint64_t start_ns, uint64_t end_ns) {
    if (start_ns < frontier_ns_) start_ns = frontier_ns_;
    if (end_ns <= start_ns) return;
    if (tail_.empty() && (merged_.empty() || start_ns >= merged_.back().start_ns)) {
      if (!merged_.empty() && start_ns <= merged_.back().end_ns) {
        if (end_ns > merged_.back().end_ns) merged_.back().end_ns = end_ns;
        return;
      }
      if (merged_.size() >= limit_) Forget();
      merged_.push_back({start_ns, end_ns});
      return;
    }
    if (tail_.empty() && AddNearEnd(start_ns, end_ns)) return;
    tail_.push_back({start_ns, end_ns});
    if (tail_.size() >= kTail) Compact();
  }
  // Adds everything that `other` covers. Its forgotten part is added as a sum: exact if disjoint from ours.
  void Merge(const IntervalUnion& other);

  uint64_t TotalNs() const;
  bool empty() const { return merged_.empty() && tail_.empty() && forgotten_ns_ == 0; }

 private:
  struct Interval {
    uint64_t start_ns;
    uint64_t end_ns;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, start_ns, end_ns);
    }
  };
  // Intervals that come late by more than a few wait in tail_; sorting them in groups of this size costs
  // about 30 ns each.
  static constexpr size_t kTail = 1024;

  // Takes a tenth of the bytes of absolute times; most of a model's state is intervals.
  template <typename Archive>
  void VisitMerged(Archive& archive) {
    uint64_t count = merged_.size();
    archive(count);
    if constexpr (Archive::kReads) merged_.clear();
    uint64_t at_ns = 0;
    for (uint64_t i = 0; i < count && archive.ok(); ++i) {
      if constexpr (Archive::kReads) merged_.emplace_back();
      Interval& interval = merged_[i];
      uint64_t gap_ns = interval.start_ns - at_ns;
      uint64_t length_ns = interval.end_ns - interval.start_ns;
      archive(gap_ns, length_ns);
      interval.start_ns = at_ns + gap_ns;
      interval.end_ns = at_ns = interval.start_ns + length_ns;
    }
  }
  // False if it begins before the last few merged intervals.
  bool AddNearEnd(uint64_t start_ns, uint64_t end_ns);
  void Compact();
  void Forget();

  size_t limit_;
  std::vector<Interval> merged_;  // sorted, disjoint, not touching
  std::vector<Interval> tail_;    // as they came
  uint64_t frontier_ns_ = 0;      // nothing before it can change
  uint64_t forgotten_ns_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: the owner's limit, and what is written densely.
    archive.Members(this, Rebuilt(limit_, merged_), tail_, frontier_ns_, forgotten_ns_);
    VisitMerged(archive);
    archive.Require(tail_.size() <= kTail);
    for (size_t i = 0; i < merged_.size(); ++i) {
      archive.Require(merged_[i].start_ns < merged_[i].end_ns &&
                      (i == 0 || merged_[i - 1].end_ns < merged_[i].start_ns));
      if (!archive.ok()) return merged_.clear();
    }
  }
};

}  // namespace gpuprobe::model
