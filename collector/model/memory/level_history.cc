#include "collector/model/memory/level_history.h"

#include <algorithm>

namespace gpuprobe::model {

void LevelHistory::Add(uint64_t time_ns, uint64_t level) {
  if (buckets_.empty()) {
    start_ns_ = time_ns;
    buckets_.push_back({level, level, level});
    return;
  }
  const uint64_t since = time_ns > start_ns_ ? time_ns - start_ns_ : 0;
  while (since / width_ns_ >= kMaxBuckets) Widen();
  const size_t index = std::max<size_t>(since / width_ns_, buckets_.size() - 1);
  // Nothing changed meanwhile.
  const uint64_t before = buckets_.back().last;
  buckets_.resize(index + 1, {before, before, before});
  Bucket& bucket = buckets_.back();
  bucket.least = std::min(bucket.least, level);
  bucket.greatest = std::max(bucket.greatest, level);
  bucket.last = level;
}

void LevelHistory::Widen() {
  width_ns_ *= 2;
  const size_t joined = (buckets_.size() + 1) / 2;
  for (size_t i = 0; i < joined; ++i) {
    const Bucket& first = buckets_[2 * i];
    const Bucket& second = buckets_[std::min(2 * i + 1, buckets_.size() - 1)];
    buckets_[i] = {std::min(first.least, second.least), std::max(first.greatest, second.greatest),
                   second.last};
  }
  buckets_.resize(joined);
}

LevelHistory::Bucket LevelHistory::Within(uint64_t from_ns, uint64_t to_ns) const {
  if (buckets_.empty() || to_ns <= start_ns_) return {};
  const uint64_t from = from_ns > start_ns_ ? from_ns - start_ns_ : 0;
  const size_t first = from / width_ns_;
  if (first >= buckets_.size()) {
    const uint64_t level = buckets_.back().last;
    return {level, level, level};
  }
  const size_t end = std::min<size_t>((to_ns - start_ns_ + width_ns_ - 1) / width_ns_, buckets_.size());
  Bucket all = buckets_[first];
  for (size_t i = first; i < end; ++i) {
    all.least = std::min(all.least, buckets_[i].least);
    all.greatest = std::max(all.greatest, buckets_[i].greatest);
    all.last = buckets_[i].last;
  }
  return all;
}

}  // namespace gpuprobe::model
