// Follows how much memory of each kind a process holds, and reports each change as a counter.
//
// Levels begin with the first record: memory that was obtained before it, by records that were dropped, is
// not in them.
#pragma once

#include <cstdint>
#include <map>

#include "collector/records/rows.h"
#include "collector/timeline/events.h"

namespace gpuprobe::timeline {

// A half-open stretch of time on the reference rank's clock.
struct Window {
  uint64_t from_ns = 0;
  uint64_t until_ns = UINT64_MAX;
  bool Holds(uint64_t time_ns) const { return time_ns >= from_ns && time_ns < until_ns; }
  bool Overlaps(uint64_t start_ns, uint64_t end_ns) const {
    return start_ns < until_ns && (end_ns > from_ns || start_ns >= from_ns);
  }
};

class MemoryLevels {
 public:
  MemoryLevels(const Window& window, EventSink& sink) : window_(window), sink_(sink) {}

  // Times are on the reference rank's clock.
  void Apply(const model::AllocationRecord& record);
  void Apply(const model::SmallAllocationsRecord& record);
  void Apply(const model::AllocatorLevelRecord& record);
  void Apply(const model::PoolLevelRecord& record);
  // Shows levels that did not change within the window.
  void Finish();

 private:
  struct Level {
    int64_t bytes = 0;
    bool shown = false;
  };
  void Set(const Counter& counter, Level& level, uint64_t time_ns, int64_t bytes);
  static Counter CounterOf(v1::MemoryKind memory, uint32_t device);

  Window window_;
  EventSink& sink_;
  std::map<Counter, Level> levels_;
};

}  // namespace gpuprobe::timeline
