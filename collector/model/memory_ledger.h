// Live bytes and high-water mark per kind of memory, from allocations and frees.
//
// Separate because order matters here as nowhere else: events of different threads can arrive slightly out of
// order, so they wait until nothing older can come (ApplyUntil) and are applied by time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collector/model/records.h"

namespace gpuprobe::model {

class MemoryLedger {
 public:
  struct Kind {
    uint64_t allocations = 0;
    uint64_t frees = 0;
    uint64_t failed = 0;  // refused allocations
    uint64_t largest_failed_bytes = 0;
    uint64_t last_failed_ns = 0;
    uint64_t live_bytes = 0;
    uint64_t high_water_bytes = 0;
    uint64_t high_water_at_ns = 0;
    uint64_t high_water_range = 0;  // innermost range that was open then, 0 if none
    template <typename Archive>
    void Visit(Archive& archive);
  };
  static constexpr size_t kKinds = 8;  // v1::MemoryKind

  void Add(const AllocationRecord& record);
  // Applies what happened up to `time_ns`.
  void ApplyUntil(uint64_t time_ns);

  template <typename Archive>
  void Visit(Archive& archive);  // model_state.cc

  const std::array<Kind, kKinds>& kinds() const { return kinds_; }

 private:
  void Apply(const AllocationRecord& record);

  std::array<Kind, kKinds> kinds_{};
  std::vector<AllocationRecord> pending_;
};

}  // namespace gpuprobe::model
