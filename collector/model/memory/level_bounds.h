// Lower and upper bound of the highest memory level, where calls that obtain and release overlap in time.
//
// The ledger assumes that each change happens when its call returns. In fact it happens somewhere within the
// call, so the order of overlapping calls by several threads is unknown. The level was at most what it is
// with every allocation at its call's begin and every release at its end, and at least what it is with
// allocations at their ends and releases at their begins: the highest points of these two courses are the
// bounds, equal where no calls overlap. Changes come in the order of their ends, and a late one reaches back
// to where its call began, so both courses keep the points that can still decide. Beyond kMostPoints the
// oldest are dropped, which makes the bounds wider and never wrong. Not thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class LevelBounds {
 public:
  static constexpr size_t kMostPoints = 64;

  // Obtained within a call; the level is `level_bytes` at its end, of which `released_bytes` may have been
  // released already.
  void Raised(uint64_t began_ns, uint64_t ended_ns, uint64_t bytes, uint64_t level_bytes,
              uint64_t released_bytes = 0) {
    RaiseUpper(began_ns, bytes);
    const uint64_t certain = level_bytes - std::min(level_bytes, released_bytes);
    if (certain <= least_bytes()) return;
    if (lower_.size() == kMostPoints) lower_.erase(lower_.begin());
    lower_.push_back({ended_ns, certain});
  }
  // Released within a call; the level is `level_bytes` at its end.
  void Lowered(uint64_t began_ns, uint64_t ended_ns, uint64_t bytes, uint64_t level_bytes) {
    SetUpper(ended_ns, level_bytes);
    LowerLower(began_ns, bytes);
  }

  // Many calls reported as one: since `since_ns`, up to `bytes` more, or less, may have been in use, until
  // Settled reports that the last of them is over.
  void Obtaining(uint64_t since_ns, uint64_t bytes) { RaiseUpper(since_ns, bytes); }
  void Releasing(uint64_t since_ns, uint64_t bytes) { LowerLower(since_ns, bytes); }
  void Settled(uint64_t time_ns, uint64_t level_bytes) { SetUpper(time_ns, level_bytes); }

  // Lower and upper bound of the highest level.
  uint64_t least_bytes() const { return lower_.empty() ? 0 : lower_.back().bytes; }
  uint64_t most_bytes() const { return upper_.empty() ? 0 : std::max(gone_bytes_, upper_.front().bytes); }
  // The largest possible error of `level_bytes`.
  uint64_t ErrorOf(uint64_t level_bytes) const {
    const uint64_t above = most_bytes() - std::min(most_bytes(), level_bytes);
    const uint64_t below = level_bytes - std::min(level_bytes, least_bytes());
    return std::max(above, below);
  }

 private:
  struct Point {
    uint64_t since_ns = 0;
    uint64_t bytes = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, since_ns, bytes);
    }
  };

  void SetUpper(uint64_t time_ns, uint64_t level_bytes) {
    upper_.push_back({time_ns, level_bytes});
    MergeOlder(upper_.size() - 1);
    if (upper_.size() <= kMostPoints) return;
    gone_bytes_ = std::max(gone_bytes_, upper_.front().bytes);
    upper_.erase(upper_.begin());
  }
  void RaiseUpper(uint64_t since_ns, uint64_t bytes) {
    if (upper_.empty()) upper_.push_back({});
    if (upper_.front().since_ns > since_ns) gone_bytes_ += bytes;
    size_t first = upper_.size();
    do {
      upper_[--first].bytes += bytes;
    } while (first > 0 && upper_[first].since_ns > since_ns);
    MergeOlder(first);
  }
  // Earlier points that are no higher than this one are redundant.
  void MergeOlder(size_t i) {
    size_t from = i;
    while (from > 0 && upper_[from - 1].bytes <= upper_[i].bytes) --from;
    if (from == i) return;
    upper_[i].since_ns = upper_[from].since_ns;
    upper_.erase(upper_.begin() + static_cast<ptrdiff_t>(from), upper_.begin() + static_cast<ptrdiff_t>(i));
  }
  // A point no higher than an earlier one is redundant: what lowers the earlier one lowers it, too.
  void LowerLower(uint64_t since_ns, uint64_t bytes) {
    size_t kept = lower_.size();
    while (kept > 0 && lower_[kept - 1].since_ns > since_ns) --kept;
    for (size_t i = kept; i < lower_.size(); ++i) {
      Point point = lower_[i];
      point.bytes -= std::min(point.bytes, bytes);
      if (kept == 0 || point.bytes > lower_[kept - 1].bytes) lower_[kept++] = point;
    }
    lower_.resize(kept);
  }

  // The upper course: its maximum since each point, falling with time; the last one is the current level.
  std::vector<Point> upper_;
  uint64_t gone_bytes_ = 0;  // the highest of those that went
  // The lower course: the levels that it reached for the first time at each point, rising with time.
  std::vector<Point> lower_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, upper_, gone_bytes_, lower_);
  }
};

}  // namespace gpuprobe::model
