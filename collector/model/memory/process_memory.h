// The memory of one process: what the driver handed out, what PyTorch's allocator made of it, and in which
// ranges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "collector/model/memory/level_history.h"
#include "collector/model/memory/level_peaks.h"
#include "collector/model/memory/memory_ledger.h"
#include "collector/model/memory/memory_lifetimes.h"
#include "collector/model/ranges/range_paths.h"
#include "collector/model/ranges/range_tracker.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/host_phases.h"
#include "collector/records/process_names.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// PyTorch's caching allocator on one device.
struct AllocatorTotals {
  uint64_t allocated_bytes = 0;  // at the last sample
  uint64_t reserved_bytes = 0;
  uint64_t peak_allocated_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  uint64_t refusals = 0;
  AllocatorRefusalRecord last_refusal{};
  LevelHistory allocated;
  LevelPeaks peaks;  // of it
  MemoryLifetimes tensors;
  uint64_t tensors_told = 0;  // handed out and taken back

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, allocated_bytes, reserved_bytes, peak_allocated_bytes, peak_reserved_bytes,
                    refusals, last_refusal, allocated, peaks, tensors, tensors_told);
  }
};

class ProcessMemory {
 public:
  explicit ProcessMemory(const ProcessNames& names);

  void On(const AllocationRecord& r);
  void On(const SmallAllocationsRecord& r);
  void On(const PoolLevelRecord& r) { ledger_.AddPoolLevel(r); }
  void On(const AllocatorLevelRecord& r);
  void On(const TensorRecord& r);
  void On(const AllocatorRefusalRecord& r);
  // A range closed; what happened in it came before.
  void On(const RangeRecord& r) { range_paths_.Close(r); }
  // Everything up to then has arrived.
  void ApplyUntil(uint64_t time_ns) { ledger_.ApplyUntil(time_ns); }
  void OnStep(const HostPhases& step);
  // Names the ranges of high-water marks while `ranges` knows them, and forgets unneeded paths.
  void ResolveRanges(const RangeTracker& ranges);
  void Finish() { ledger_.Finish(); }

  const MemoryLedger& ledger() const { return ledger_; }
  const std::map<uint32_t, AllocatorTotals>& allocator() const { return allocator_; }
  std::string HighWaterRange(size_t kind) const;
  // See ProcessModel.
  std::string RangePath(uint64_t range) const;

 private:
  struct HighWaterName {
    uint64_t range = 0;
    PhaseNode::Key name{0, 0};

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, range, name);
    }
  };

  void ResolveHighWaterRanges(const RangeTracker& ranges);

  const ProcessNames& names_;
  MemoryLedger ledger_;
  RangePaths range_paths_;
  std::map<uint32_t, AllocatorTotals> allocator_;  // by device
  std::array<HighWaterName, MemoryLedger::kKinds> high_water_names_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(names_), ledger_, range_paths_, allocator_, high_water_names_);
  }
};

}  // namespace gpuprobe::model
