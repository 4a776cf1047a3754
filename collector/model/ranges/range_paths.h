// Paths of the ranges around an event: "step/forward/attention".
//
// Separate from RangeTracker, which forgets an instance once its time is in the statistics: an allocation of
// the first second may be named at the end of the job. Only watched ranges and those around them are kept; a
// range must be watched before it closes, like everything that happens in it. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/records.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class RangePaths {
 public:
  // Ranges kept before those that nobody needs any more are looked for.
  static constexpr size_t kMaxRanges = size_t{1} << 17;

  void Watch(uint64_t range);
  void Close(const RangeRecord& record);
  // StringDefs of the names from the outermost range on; 0 where a range has not closed.
  std::vector<uint32_t> Path(uint64_t range) const;

  bool full() const { return ranges_.size() >= limit_; }
  // Forgets everything that is not around a range that `for_each_needed` calls its argument with.
  void Forget(const std::function<void(const std::function<void(uint64_t)>&)>& for_each_needed);

 private:
  struct Range {
    uint64_t parent = 0;
    uint32_t name = 0;
    bool closed = false;
    bool needed = false;  // while the others are forgotten

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, Rebuilt(needed), parent, name, closed);
    }
  };

  absl::flat_hash_map<uint64_t, Range> ranges_;
  size_t limit_ = kMaxRanges;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    // Rebuilt: the owner's.
    archive.Members(this, Rebuilt(limit_), ranges_);
  }
};

}  // namespace gpuprobe::model
