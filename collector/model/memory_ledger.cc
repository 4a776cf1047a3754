#include "collector/model/memory_ledger.h"

#include <algorithm>

namespace gpuprobe::model {

void MemoryLedger::Add(const AllocationRecord& record) {
  // Far beyond one flush interval of the busiest program: applying early then costs order, not memory.
  constexpr size_t kMaxPending = size_t{1} << 20;
  pending_.push_back(record);
  if (pending_.size() >= kMaxPending) ApplyUntil(UINT64_MAX);
}

void MemoryLedger::ApplyUntil(uint64_t time_ns) {
  const auto by_time = [](const AllocationRecord& a, const AllocationRecord& b) {
    return a.time_ns < b.time_ns;
  };
  std::stable_sort(pending_.begin(), pending_.end(), by_time);
  const auto end = std::find_if(pending_.begin(), pending_.end(),
                                [&](const AllocationRecord& r) { return r.time_ns > time_ns; });
  for (auto it = pending_.begin(); it != end; ++it) Apply(*it);
  pending_.erase(pending_.begin(), end);
}

void MemoryLedger::Apply(const AllocationRecord& record) {
  const auto index = static_cast<size_t>(record.memory);
  Kind& kind = kinds_[index < kKinds ? index : 0];
  if (record.failed) {
    ++kind.failed;
    kind.largest_failed_bytes = std::max(kind.largest_failed_bytes, record.bytes);
    kind.last_failed_ns = record.time_ns;
    return;
  }
  if (record.op == v1::ALLOCATION_OP_FREE) {
    ++kind.frees;
    kind.live_bytes -= std::min(kind.live_bytes, record.bytes);
    return;
  }
  ++kind.allocations;
  kind.live_bytes += record.bytes;
  if (kind.live_bytes > kind.high_water_bytes) {
    kind.high_water_bytes = kind.live_bytes;
    kind.high_water_at_ns = record.time_ns;
    kind.high_water_range = record.range;
  }
}

}  // namespace gpuprobe::model
