// How a level (bytes in use) moved over a run of any length, in bounded memory.
//
// Trends are computed at the end, when the steps are known. Time is cut into equal buckets, each with the
// least and the greatest level in it; when there are too many, neighbours are joined and the buckets are
// twice as long from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class LevelHistory {
 public:
  static constexpr size_t kMaxBuckets = 1024;
  static constexpr uint64_t kFirstWidthNs = 1'000'000;

  struct Bucket {
    uint64_t least = 0;
    uint64_t greatest = 0;
    uint64_t last = 0;  // level at its end

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, least, greatest, last);
    }
  };

  // The level is this from `time_ns` on. A time before the last one counts as the last one.
  void Add(uint64_t time_ns, uint64_t level);

  bool empty() const { return buckets_.empty(); }
  // buckets()[i] covers [start_ns() + i * width_ns(), ... + width_ns()). The level stays after the last one.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint64_t start_ns() const { return start_ns_; }
  uint64_t width_ns() const { return width_ns_; }
  // Least and greatest level in [from_ns, to_ns), as exact as the buckets are; both 0 before the first level.
  Bucket Within(uint64_t from_ns, uint64_t to_ns) const;

 private:
  void Widen();

  uint64_t start_ns_ = 0;
  uint64_t width_ns_ = kFirstWidthNs;
  std::vector<Bucket> buckets_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns_, width_ns_, buckets_);
    archive.Require(width_ns_ > 0);
  }
};

}  // namespace gpuprobe::model
