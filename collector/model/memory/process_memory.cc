#include "collector/model/memory/process_memory.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/model/steps/work_roles.h"

namespace gpuprobe::model {

ProcessMemory::ProcessMemory(const ProcessNames& names) : names_(names) {}

void ProcessMemory::On(const AllocationRecord& r) {
  range_paths_.Watch(r.range);
  ledger_.Add(r);
}

void ProcessMemory::On(const SmallAllocationsRecord& r) {
  range_paths_.Watch(r.range);
  ledger_.AddSmall(r);
}

void ProcessMemory::On(const AllocatorLevelRecord& r) {
  AllocatorTotals& totals = allocator_[r.device];
  totals.allocated_bytes = r.allocated_bytes;
  totals.allocated.Add(r.time_ns, r.allocated_bytes);
  totals.peaks.Add(r.time_ns, r.allocated_bytes);
  totals.reserved_bytes = r.reserved_bytes;
  totals.peak_allocated_bytes = std::max(totals.peak_allocated_bytes, r.peak_allocated_bytes);
  totals.peak_reserved_bytes = std::max(totals.peak_reserved_bytes, r.peak_reserved_bytes);
}

void ProcessMemory::On(const TensorRecord& r) {
  AllocatorTotals& totals = allocator_[r.device];
  ++totals.tensors_told;
  totals.tensors.Add(r.time_ns, r.address, Magnitude(r.change_bytes), r.change_bytes < 0);
}

void ProcessMemory::On(const AllocatorRefusalRecord& r) {
  range_paths_.Watch(r.range);
  AllocatorTotals& totals = allocator_[r.device];
  ++totals.refusals;
  totals.last_refusal = r;
}

void ProcessMemory::OnStep(const HostPhases& step) {
  ledger_.EndStep(step);
  for (auto& [device, totals] : allocator_) {
    totals.peaks.EndStep(step);
    totals.tensors.EndStep(step);
  }
}

void ProcessMemory::ResolveRanges(const RangeTracker& ranges) {
  ResolveHighWaterRanges(ranges);
  if (!range_paths_.full()) return;
  range_paths_.Forget([this](const std::function<void(uint64_t)>& need) {
    ledger_.ForEachRange(need);
    for (const auto& [device, totals] : allocator_) need(totals.last_refusal.range);
  });
}

void ProcessMemory::ResolveHighWaterRanges(const RangeTracker& ranges) {
  for (size_t i = 0; i < MemoryLedger::kKinds; ++i) {
    HighWaterName& known = high_water_names_[i];
    const uint64_t range = ledger_.kinds()[i].high_water_range;
    if (known.range != range) known = {.range = range, .name = {0, 0}};
    if (known.range != 0 && known.name.second == 0) known.name = ranges.NameOf(known.range);
  }
}

std::string ProcessMemory::HighWaterRange(size_t kind) const {
  const auto& [domain, name] = high_water_names_[kind].name;
  return IsLibraryDomain(names_.String(domain)) ? std::string() : std::string(names_.String(name));
}

std::string ProcessMemory::RangePath(uint64_t range) const {
  return absl::StrJoin(range_paths_.Path(range), "/", [this](std::string* out, uint32_t name) {
    absl::StrAppend(out, name == 0 ? "?" : names_.String(name));
  });
}

}  // namespace gpuprobe::model
