#include "collector/timeline/memory_levels.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"

namespace gpuprobe::timeline {
namespace {

// The pairs of levels that PyTorch's allocator and the driver's pools report.
constexpr uint32_t kUsed = 0;
constexpr uint32_t kReserved = 1;

std::string NameOf(const Counter& c) {
  const char* level = c.part % 2 == kUsed ? " used" : " reserved";
  switch (c.kind) {
    case CounterKind::kPinnedMemory:
      return "memory pinned";
    case CounterKind::kPytorch:
      return absl::StrCat("GPU ", c.device, " PyTorch", c.part == kUsed ? " allocated" : " reserved");
    case CounterKind::kPool:
      return absl::StrCat("GPU ", c.device, " pool ", c.part / 2, level);
    default:
      return absl::StrCat("GPU ", c.device, " memory ",
                          std::string(analysis::MemoryName(static_cast<v1::MemoryKind>(c.part))));
  }
}

}  // namespace

Counter MemoryLevels::CounterOf(v1::MemoryKind memory, uint32_t device) {
  if (memory == v1::MEMORY_KIND_PINNED) return {.kind = CounterKind::kPinnedMemory, .device = 0, .part = 0};
  return {.kind = CounterKind::kMemory, .device = device, .part = static_cast<uint32_t>(memory)};
}

void MemoryLevels::Set(const Counter& counter, Level& level, uint64_t time_ns, int64_t bytes) {
  if (time_ns >= window_.until_ns) return;
  const int64_t before = level.bytes;
  level.bytes = bytes;
  if (time_ns < window_.from_ns) return;
  if (!level.shown) {
    sink_.DescribeCounter(counter, NameOf(counter), Unit::kBytes);
    if (before != 0) sink_.OnCounter(counter, window_.from_ns, static_cast<double>(before));
    level.shown = true;
  }
  sink_.OnCounter(counter, time_ns, static_cast<double>(std::max<int64_t>(bytes, 0)));
}

void MemoryLevels::Apply(const model::AllocationRecord& record) {
  if (record.failed) return;
  const Counter counter = CounterOf(record.memory, record.device);
  Level& level = levels_[counter];
  const auto bytes = static_cast<int64_t>(record.bytes);
  Set(counter, level, record.time_ns,
      record.op == v1::ALLOCATION_OP_FREE ? level.bytes - bytes : level.bytes + bytes);
}

void MemoryLevels::Apply(const model::SmallAllocationsRecord& record) {
  const Counter counter = CounterOf(record.memory, record.device);
  Level& level = levels_[counter];
  const int64_t before = level.bytes;
  if (record.rise_bytes > 0)
    Set(counter, level, record.highest_ns, before + static_cast<int64_t>(record.rise_bytes));
  Set(counter, level, record.end_ns, before + record.change_bytes);
}

void MemoryLevels::Apply(const model::AllocatorLevelRecord& record) {
  const Counter allocated{.kind = CounterKind::kPytorch, .device = record.device, .part = kUsed};
  Set(allocated, levels_[allocated], record.time_ns, static_cast<int64_t>(record.allocated_bytes));
  if (record.reserved_bytes == 0) return;
  const Counter reserved{.kind = CounterKind::kPytorch, .device = record.device, .part = kReserved};
  Set(reserved, levels_[reserved], record.time_ns, static_cast<int64_t>(record.reserved_bytes));
}

void MemoryLevels::Apply(const model::PoolLevelRecord& record) {
  const Counter used{.kind = CounterKind::kPool, .device = record.device, .part = 2 * record.pool + kUsed};
  const Counter reserved{
      .kind = CounterKind::kPool, .device = record.device, .part = 2 * record.pool + kReserved};
  Set(used, levels_[used], record.time_ns, static_cast<int64_t>(record.used_bytes));
  Set(reserved, levels_[reserved], record.time_ns, static_cast<int64_t>(record.reserved_bytes));
}

void MemoryLevels::Finish() {
  for (auto& [counter, level] : levels_) {
    if (level.shown || level.bytes == 0) continue;
    sink_.DescribeCounter(counter, NameOf(counter), Unit::kBytes);
    sink_.OnCounter(counter, window_.from_ns, static_cast<double>(level.bytes));
  }
}

}  // namespace gpuprobe::timeline
