// Live bytes and high-water mark per kind of memory, from allocations and frees; the bytes by kind when the
// mark was reached, and when an allocation was refused.
//
// Events of different threads can arrive slightly out of order, so they wait until nothing older can come
// (ApplyUntil) and are applied by time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/memory/level_bounds.h"
#include "collector/model/memory/level_history.h"
#include "collector/model/memory/level_peaks.h"
#include "collector/model/memory/memory_lifetimes.h"
#include "collector/model/memory/memory_pools.h"
#include "collector/model/state/members.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class MemoryLedger {
 public:
  static constexpr size_t kKinds = 9;    // v1::MemoryKind
  static constexpr size_t kLargest = 5;  // allocations named at a high-water mark
  static constexpr size_t kMaxRefusals =
      64;  // kept one by one: the first ones and, in the last place, the last
  static constexpr size_t kMaxLive = 1 << 20;  // allocations known one by one; sums are exact beyond it

  struct Held {
    uint64_t bytes = 0;
    uint64_t range = 0;  // innermost range in which it was allocated, 0 if none

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, bytes, range);
    }
  };
  struct Kind {
    uint64_t allocations = 0;
    uint64_t frees = 0;
    uint64_t small = 0;   // of the allocations, those that have no record of their own
    uint64_t failed = 0;  // refused allocations
    uint64_t largest_failed_bytes = 0;
    uint64_t live_bytes = 0;
    uint64_t high_water_bytes = 0;
    uint64_t high_water_at_ns = 0;
    uint64_t high_water_range = 0;  // innermost range that was open then, 0 if none
    std::vector<Held> largest;      // live then, largest first
    LevelBounds bounds;             // of the mark, where calls overlapped
    LevelHistory level;             // of live_bytes

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, allocations, frees, small, failed, largest_failed_bytes, live_bytes,
                      high_water_bytes, high_water_at_ns, high_water_range, largest, bounds, level);
    }
  };
  using BytesByKind = std::array<uint64_t, kKinds>;
  // Device memory of all kinds (device, pool, array, vmm, graph, and managed, which may be elsewhere) that
  // driver calls obtained on one device.
  struct Device {
    BytesByKind live{};
    uint64_t live_bytes = 0;
    uint64_t high_water_bytes = 0;
    uint64_t high_water_at_ns = 0;
    BytesByKind at_high_water{};
    LevelBounds bounds;  // of live_bytes
    LevelHistory level;  // of live_bytes
    LevelPeaks peaks;    // of live_bytes
    MemoryLifetimes lifetimes;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, live, live_bytes, high_water_bytes, high_water_at_ns, at_high_water, bounds,
                      level, peaks, lifetimes);
    }
  };
  struct Refusal {
    uint64_t time_ns = 0;
    v1::MemoryKind memory = v1::MEMORY_KIND_UNKNOWN;
    uint64_t asked_bytes = 0;
    uint32_t device = 0;
    uint64_t range = 0;
    BytesByKind live{};  // on that device; pinned memory of the whole process

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, memory, asked_bytes, device, range, live);
    }
  };

  void Add(const AllocationRecord& record);
  void AddSmall(const SmallAllocationsRecord& run);
  void AddPoolLevel(const PoolLevelRecord& level) { pools_.Add(level); }
  // Applies what happened up to `time_ns`.
  void ApplyUntil(uint64_t time_ns);
  // A step is over, and what happened in it has been applied.
  void EndStep(const HostPhases& step) {
    for (auto& [ordinal, device] : devices_) {
      device.peaks.EndStep(step);
      device.lifetimes.EndStep(step);
    }
  }
  // The high-water marks are final.
  void Finish();

  const std::array<Kind, kKinds>& kinds() const { return kinds_; }
  const std::map<uint32_t, Device>& devices() const { return devices_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }
  const MemoryPools& pools() const { return pools_; }

  // Calls visit(range id) for every range that results may refer to.
  template <typename Visit>
  void ForEachRange(Visit visit) const {
    for (const AllocationRecord& record : pending_) visit(record.range);
    for (const SmallStep& step : pending_small_) visit(step.range);
    for (const auto& [key, held] : live_) visit(held.range);
    for (const Refusal& refusal : refusals_) visit(refusal.range);
    for (const Kind& kind : kinds_) {
      visit(kind.high_water_range);
      for (const Held& held : kind.largest) visit(held.range);
    }
  }

 private:
  // Calls of a run that began before another one ended.
  struct Overlap {
    uint64_t bytes;         // the most at one time
    uint64_t before_bytes;  // of those that began before the run
    uint64_t since_ns;      // when the first of these began

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, bytes, before_bytes, since_ns);
    }
  };
  // The effect of small allocations on a level at one moment.
  struct SmallStep {
    uint64_t time_ns;
    uint32_t kind;
    uint32_t device;
    int64_t change_bytes;
    uint64_t allocations;
    uint64_t frees;
    uint64_t range;
    Overlap obtained;
    Overlap released;
    bool settles;  // the run is over

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, kind, device, change_bytes, allocations, frees, range, settles, obtained,
                      released);
      archive.Require(kind < kKinds);
    }
  };
  // When a level changed: within a call.
  struct Moment {
    uint64_t began_ns;
    uint64_t ended_ns;
    uint64_t released_bytes = 0;  // that may have been gone when it ended
  };

  static Moment MomentOf(const AllocationRecord& record);
  void Apply(const AllocationRecord& record);
  void Apply(const SmallStep& step);
  static void Blur(const SmallStep& step, LevelBounds* bounds);
  void Raise(size_t kind, uint32_t device, uint64_t bytes, const Moment& moment, uint64_t range);
  void Lower(size_t kind, uint32_t device, uint64_t bytes, const Moment& moment);
  void Refused(const AllocationRecord& record);
  void Released(size_t kind, const AllocationRecord& record);
  void NameLargest(size_t kind);

  std::array<Kind, kKinds> kinds_{};
  std::map<uint32_t, Device> devices_;
  std::vector<Refusal> refusals_;
  std::vector<AllocationRecord> pending_;
  std::vector<SmallStep> pending_small_;
  MemoryPools pools_;
  // Live allocations: by (kind, address), and of each kind by size.
  using Key = std::pair<uint32_t, uint64_t>;
  absl::flat_hash_map<Key, Held> live_;
  std::array<std::set<std::pair<uint64_t, uint64_t>>, kKinds> by_size_;  // (bytes, address)
  std::array<bool, kKinds> at_high_water_{};  // live bytes are at the mark, and `largest` is older than it

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(by_size_), kinds_, devices_, refusals_, pending_, pending_small_, live_,
                    at_high_water_, pools_);
    if constexpr (Archive::kReads) {
      for (auto& by_size : by_size_) by_size.clear();
      for (const auto& [key, held] : live_) {
        archive.Require(key.first < kKinds);
        if (key.first < kKinds) by_size_[key.first].emplace(held.bytes, key.second);
      }
    }
  }
};

}  // namespace gpuprobe::model
