#include "collector/model/statistics/interval_union.h"

#include <algorithm>

namespace gpuprobe::model {

bool IntervalUnion::AddNearEnd(uint64_t start_ns, uint64_t end_ns) {
  constexpr size_t kNear = 8;
  // The last interval that begins no later, and from there on all that the new one reaches.
  size_t before = merged_.size();
  while (before > 0 && merged_[before - 1].start_ns > start_ns) {
    --before;
    if (merged_.size() - before > kNear) return false;
  }
  const bool joins = before > 0 && merged_[before - 1].end_ns >= start_ns;
  size_t reached = before;
  while (reached < merged_.size() && merged_[reached].start_ns <= end_ns) {
    end_ns = std::max(end_ns, merged_[reached++].end_ns);
  }
  const auto at = [this](size_t i) { return merged_.begin() + static_cast<ptrdiff_t>(i); };
  if (joins) {
    merged_[before - 1].end_ns = std::max(merged_[before - 1].end_ns, end_ns);
    merged_.erase(at(before), at(reached));
  } else if (reached > before) {
    merged_[before] = {start_ns, end_ns};
    merged_.erase(at(before + 1), at(reached));
  } else {
    merged_.insert(at(before), {start_ns, end_ns});
    if (merged_.size() > limit_) Forget();
  }
  return true;
}

void IntervalUnion::Compact() {
  if (tail_.empty()) return;
  const auto by_start = [](const Interval& a, const Interval& b) { return a.start_ns < b.start_ns; };
  std::sort(tail_.begin(), tail_.end(), by_start);
  // Only the part of merged_ from the first interval that can touch the tail is redone.
  auto first = std::lower_bound(merged_.begin(), merged_.end(), tail_.front(), by_start);
  if (first != merged_.begin()) --first;
  std::vector<Interval> redo(first, merged_.end());
  merged_.erase(first, merged_.end());
  size_t i = 0;
  size_t j = 0;
  while (i < redo.size() || j < tail_.size()) {
    const bool take_redo = j == tail_.size() || (i < redo.size() && redo[i].start_ns <= tail_[j].start_ns);
    const Interval next = take_redo ? redo[i++] : tail_[j++];
    if (!merged_.empty() && next.start_ns <= merged_.back().end_ns) {
      merged_.back().end_ns = std::max(merged_.back().end_ns, next.end_ns);
    } else {
      merged_.push_back(next);
    }
  }
  tail_.clear();
  if (merged_.size() > limit_) Forget();
}

void IntervalUnion::Forget() {
  const auto half = static_cast<ptrdiff_t>(merged_.size() / 2);
  for (auto it = merged_.begin(); it != merged_.begin() + half; ++it)
    forgotten_ns_ += it->end_ns - it->start_ns;
  frontier_ns_ = merged_[static_cast<size_t>(half) - 1].end_ns;
  merged_.erase(merged_.begin(), merged_.begin() + half);
}

void IntervalUnion::Merge(const IntervalUnion& other) {
  forgotten_ns_ += other.forgotten_ns_;
  for (const Interval& interval : other.merged_) Add(interval.start_ns, interval.end_ns);
  for (const Interval& interval : other.tail_) Add(interval.start_ns, interval.end_ns);
}

uint64_t IntervalUnion::TotalNs() const {
  if (!tail_.empty()) {
    IntervalUnion sorted = *this;
    sorted.Compact();
    return sorted.TotalNs();
  }
  uint64_t total = forgotten_ns_;
  for (const Interval& interval : merged_) total += interval.end_ns - interval.start_ns;
  return total;
}

}  // namespace gpuprobe::model
