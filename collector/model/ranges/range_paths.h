// Paths of the ranges around an event: "step/forward/attention".
//
// RangeTracker forgets an instance once its time is in the statistics, but an allocation of the first second
// may need its path at the end of the job. Only watched ranges and their ancestors are kept; a range must be
// watched before it closes, while the event in it happens. Not thread-safe: one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class RangePaths {
 public:
  // When more ranges than this are kept, those no longer needed are removed.
  static constexpr size_t kMaxRanges = size_t{1} << 17;

  void Watch(uint64_t range);
  void Close(const RangeRecord& record);
  // StringDefs of the names from the outermost range on; 0 where a range has not closed.
  std::vector<uint32_t> Path(uint64_t range) const;

  bool full() const { return ranges_.size() >= limit_; }
  // Forgets all ranges except those that `for_each_needed` passes to its argument, and their ancestors.
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
