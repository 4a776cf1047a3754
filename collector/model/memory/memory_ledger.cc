#include "collector/model/memory/memory_ledger.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

bool IsOnDevice(size_t kind) {
  switch (static_cast<v1::MemoryKind>(kind)) {
    case v1::MEMORY_KIND_DEVICE:
    case v1::MEMORY_KIND_MANAGED:
    case v1::MEMORY_KIND_POOL:
    case v1::MEMORY_KIND_ARRAY:
    case v1::MEMORY_KIND_VMM:
    case v1::MEMORY_KIND_GRAPH:
      return true;
    default:
      return false;
  }
}

}  // namespace

// Far beyond one flush interval of the busiest program: applying early then costs order, not memory.
constexpr size_t kMaxPending = size_t{1} << 20;

void MemoryLedger::Add(const AllocationRecord& record) {
  pending_.push_back(record);
  if (!record.failed && IsOnDevice(static_cast<size_t>(record.memory))) {
    devices_[record.device].lifetimes.Add(record.time_ns, record.address, record.bytes,
                                          record.op == v1::ALLOCATION_OP_FREE, record.by_nccl);
  }
  if (pending_.size() >= kMaxPending) ApplyUntil(UINT64_MAX);
}

void MemoryLedger::AddSmall(const SmallAllocationsRecord& run) {
  const auto kind = static_cast<uint32_t>(run.memory);
  SmallStep end{.time_ns = run.end_ns,
                .kind = kind < kKinds ? kind : 0,
                .device = run.device,
                .change_bytes = run.change_bytes,
                .allocations = run.allocations,
                .frees = run.frees,
                .range = run.range,
                .obtained = {run.obtained_bytes, run.obtained_before_bytes, run.obtained_since_ns},
                .released = {run.released_bytes, run.released_before_bytes, run.released_since_ns},
                .settles = run.obtained_bytes != 0};
  if (run.rise_bytes != 0) {
    SmallStep highest = end;
    highest.time_ns = run.highest_ns;
    highest.change_bytes = static_cast<int64_t>(run.rise_bytes);
    highest.allocations = highest.frees = 0;
    pending_small_.push_back(highest);
    end.change_bytes = static_cast<int64_t>(static_cast<uint64_t>(run.change_bytes) - run.rise_bytes);
    highest.settles = false;
    end.obtained = end.released = {};
  }
  pending_small_.push_back(end);
  if (pending_small_.size() >= kMaxPending) ApplyUntil(UINT64_MAX);
}

// A run of small ones was cut before the record that follows it: at the same time, the run comes first.
void MemoryLedger::ApplyUntil(uint64_t time_ns) {
  const auto by_time = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  std::stable_sort(pending_.begin(), pending_.end(), by_time);
  std::stable_sort(pending_small_.begin(), pending_small_.end(), by_time);
  auto record = pending_.begin();
  auto step = pending_small_.begin();
  for (;;) {
    const bool steps_left = step != pending_small_.end() && step->time_ns <= time_ns;
    const bool records_left = record != pending_.end() && record->time_ns <= time_ns;
    if (!steps_left && !records_left) break;
    if (steps_left && (!records_left || step->time_ns <= record->time_ns)) {
      Apply(*step++);
    } else {
      Apply(*record++);
    }
  }
  pending_.erase(pending_.begin(), record);
  pending_small_.erase(pending_small_.begin(), step);
}

void MemoryLedger::Finish() {
  ApplyUntil(UINT64_MAX);
  for (size_t kind = 0; kind < kKinds; ++kind) NameLargest(kind);
}

MemoryLedger::Moment MemoryLedger::MomentOf(const AllocationRecord& record) {
  return {.began_ns = record.time_ns - std::min(record.time_ns, record.duration_ns),
          .ended_ns = record.time_ns};
}

void MemoryLedger::Apply(const AllocationRecord& record) {
  const size_t index = static_cast<size_t>(record.memory) < kKinds ? static_cast<size_t>(record.memory) : 0;
  if (record.failed) return Refused(record);
  if (record.op == v1::ALLOCATION_OP_FREE) return Released(index, record);
  Kind& kind = kinds_[index];
  ++kind.allocations;
  if (live_.size() < kMaxLive) {
    const auto [held, added] = live_.try_emplace(Key(static_cast<uint32_t>(index), record.address),
                                                 Held{record.bytes, record.range});
    if (added) by_size_[index].emplace(record.bytes, record.address);
  }
  Raise(index, record.device, record.bytes, MomentOf(record), record.range);
}

void MemoryLedger::Apply(const SmallStep& step) {
  Kind& kind = kinds_[step.kind];
  kind.allocations += step.allocations;
  kind.small += step.allocations;
  kind.frees += step.frees;
  const bool on_device = IsOnDevice(step.kind);
  Blur(step, &kind.bounds);
  if (on_device) Blur(step, &devices_[step.device].bounds);
  const Moment moment{
      .began_ns = step.time_ns, .ended_ns = step.time_ns, .released_bytes = step.released.bytes};
  if (step.change_bytes > 0) {
    Raise(step.kind, step.device, static_cast<uint64_t>(step.change_bytes), moment, step.range);
  } else if (step.change_bytes < 0) {
    NameLargest(step.kind);
    Lower(step.kind, step.device, 0 - static_cast<uint64_t>(step.change_bytes), moment);
  }
  if (!step.settles) return;
  kind.bounds.Settled(step.time_ns, kind.live_bytes);
  if (!on_device) return;
  Device& device = devices_[step.device];
  device.bounds.Settled(step.time_ns, device.live_bytes);
}

void MemoryLedger::Blur(const SmallStep& step, LevelBounds* bounds) {
  if (step.obtained.bytes != 0) {
    const uint64_t before_bytes = std::min(step.obtained.before_bytes, step.obtained.bytes);
    if (before_bytes != 0) bounds->Obtaining(step.obtained.since_ns, before_bytes);
    bounds->Obtaining(step.time_ns, step.obtained.bytes - before_bytes);
  }
  if (step.released.before_bytes != 0) bounds->Releasing(step.released.since_ns, step.released.before_bytes);
}

void MemoryLedger::Raise(size_t index, uint32_t ordinal, uint64_t bytes, const Moment& moment,
                         uint64_t range) {
  const uint64_t time_ns = moment.ended_ns;
  Kind& kind = kinds_[index];
  kind.live_bytes += bytes;
  kind.bounds.Raised(moment.began_ns, time_ns, bytes, kind.live_bytes, moment.released_bytes);
  kind.level.Add(time_ns, kind.live_bytes);
  if (kind.live_bytes > kind.high_water_bytes) {
    kind.high_water_bytes = kind.live_bytes;
    kind.high_water_at_ns = time_ns;
    kind.high_water_range = range;
    at_high_water_[index] = true;
  }
  if (!IsOnDevice(index)) return;
  Device& device = devices_[ordinal];
  device.live[index] += bytes;
  device.live_bytes += bytes;
  device.bounds.Raised(moment.began_ns, time_ns, bytes, device.live_bytes, moment.released_bytes);
  device.level.Add(time_ns, device.live_bytes);
  device.peaks.Add(time_ns, device.live_bytes);
  if (device.live_bytes > device.high_water_bytes) {
    device.high_water_bytes = device.live_bytes;
    device.high_water_at_ns = time_ns;
    device.at_high_water = device.live;
  }
}

void MemoryLedger::Refused(const AllocationRecord& record) {
  const size_t index = static_cast<size_t>(record.memory) < kKinds ? static_cast<size_t>(record.memory) : 0;
  Kind& kind = kinds_[index];
  ++kind.failed;
  kind.largest_failed_bytes = std::max(kind.largest_failed_bytes, record.bytes);
  if (refusals_.size() == kMaxRefusals) refusals_.pop_back();
  Refusal& refusal = refusals_.emplace_back();
  refusal.time_ns = record.time_ns;
  refusal.memory = record.memory;
  refusal.asked_bytes = record.bytes;
  refusal.device = record.device;
  refusal.range = record.range;
  if (const auto device = devices_.find(record.device); device != devices_.end())
    refusal.live = device->second.live;
  refusal.live[v1::MEMORY_KIND_PINNED] = kinds_[v1::MEMORY_KIND_PINNED].live_bytes;
}

void MemoryLedger::Released(size_t index, const AllocationRecord& record) {
  NameLargest(index);
  Kind& kind = kinds_[index];
  ++kind.frees;
  if (const auto held = live_.find(Key(static_cast<uint32_t>(index), record.address)); held != live_.end()) {
    by_size_[index].erase({held->second.bytes, record.address});
    live_.erase(held);
  }
  Lower(index, record.device, record.bytes, MomentOf(record));
}

void MemoryLedger::Lower(size_t index, uint32_t ordinal, uint64_t bytes, const Moment& moment) {
  const uint64_t time_ns = moment.ended_ns;
  Kind& kind = kinds_[index];
  kind.live_bytes -= std::min(kind.live_bytes, bytes);
  kind.bounds.Lowered(moment.began_ns, time_ns, bytes, kind.live_bytes);
  kind.level.Add(time_ns, kind.live_bytes);
  if (!IsOnDevice(index)) return;
  Device& device = devices_[ordinal];
  device.live[index] -= std::min(device.live[index], bytes);
  device.live_bytes -= std::min(device.live_bytes, bytes);
  device.bounds.Lowered(moment.began_ns, time_ns, bytes, device.live_bytes);
  device.level.Add(time_ns, device.live_bytes);
  device.peaks.Add(time_ns, device.live_bytes);
}

// A mark stands until something is released: only then, or at the end, is it worth asking what made it.
void MemoryLedger::NameLargest(size_t index) {
  if (!at_high_water_[index]) return;
  at_high_water_[index] = false;
  Kind& kind = kinds_[index];
  kind.largest.clear();
  const auto& by_size = by_size_[index];
  for (auto it = by_size.rbegin(); it != by_size.rend() && kind.largest.size() < kLargest; ++it) {
    kind.largest.push_back(live_.at(Key(static_cast<uint32_t>(index), it->second)));
  }
}

}  // namespace gpuprobe::model
