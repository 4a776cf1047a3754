#include "injector/capture/memory/pytorch.h"

#include <atomic>

#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector::pytorch {

const char* const kSymbols[kFunctions] = {
    "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
    "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
    "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
    "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
};

namespace {

constexpr uint8_t kCuda = 1;  // c10::DeviceType::CUDA

// One writer at a time: the allocator's lock of the device.
struct alignas(64) Level {
  std::atomic<uint64_t> allocated;
  std::atomic<uint64_t> reserved;
  std::atomic<uint64_t> peak_allocated;
  std::atomic<uint64_t> peak_reserved;
  std::atomic<uint64_t> changes;
  uint64_t reported_changes;  // the probe's thread's
};
constinit Level levels[kMaxDevices] = {};

constinit std::atomic<void*> real_functions[kFunctions] = {};

// c10::Device is two bytes, type and index, which come in the low bits of a register; the others are whatever
// was there before.
int DeviceOf(uint64_t device) noexcept {
  const auto index = static_cast<int8_t>(device >> 8);
  return static_cast<uint8_t>(device) == kCuda && index >= 0 && index < kMaxDevices ? index : -1;
}

void Note(Level& level, uint64_t allocated, uint64_t reserved) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  level.allocated.store(allocated, kRelaxed);
  level.reserved.store(reserved, kRelaxed);
  if (allocated > level.peak_allocated.load(kRelaxed)) level.peak_allocated.store(allocated, kRelaxed);
  if (reserved > level.peak_reserved.load(kRelaxed)) level.peak_reserved.store(reserved, kRelaxed);
  level.changes.store(level.changes.load(kRelaxed) + 1, kRelaxed);
}

void NoteTensor(void* pointer, int64_t size, int device) noexcept {
  if (step_gate.rests()) return;
  const Guard guard;
  if (!guard) return;
  TensorEvent event{};
  event.time_ns = Stamp();
  event.address = reinterpret_cast<uintptr_t>(pointer);
  event.bytes = size;
  event.range_id = InnermostRange(guard.thread());
  event.device = device;
  Emit(guard.thread(), event);
}

template <typename Signature>
Signature* RealOf(Function function) noexcept {
  return reinterpret_cast<Signature*>(
      real_functions[static_cast<int>(function)].load(std::memory_order_acquire));
}

// The next functions are not noexcept: exceptions of the real function pass through. A slot holds one of them
// only after its real function was set.
template <Function kFunction>
void OnUsage(void* pointer, int64_t size, uint64_t allocated, uint64_t reserved, uint64_t device) {
  if (const int index = DeviceOf(device); index >= 0) {
    Note(levels[index], allocated, reserved);
    NoteTensor(pointer, size, index);
  }
  RealOf<decltype(OnUsage<kFunction>)>(kFunction)(pointer, size, allocated, reserved, device);
}

// The first versions reported only the size: positive for an allocation, negative for a release.
void OnUsageWithoutTotals(void* pointer, int64_t size, uint64_t device) {
  if (const int index = DeviceOf(device); index >= 0) {
    Level& level = levels[index];
    const uint64_t allocated = level.allocated.load(std::memory_order_relaxed) + static_cast<uint64_t>(size);
    Note(level, static_cast<int64_t>(allocated) < 0 ? 0 : allocated, 0);
    NoteTensor(pointer, size, index);
  }
  RealOf<decltype(OnUsageWithoutTotals)>(Function::kUsageWithoutTotals)(pointer, size, device);
}

void NoteOutOfMemory(int64_t size, uint64_t allocated, uint64_t reserved, int32_t device) noexcept {
  const Guard guard;
  if (!guard) return;
  AllocatorRefusalEvent event{};
  event.time_ns = NowNs();
  event.asked_bytes = static_cast<uint64_t>(size);
  event.allocated_bytes = allocated;
  event.reserved_bytes = reserved;
  event.range_id = InnermostRange(guard.thread());
  event.device = device;
  Emit(guard.thread(), event);
}

template <Function kFunction>
void OnOutOfMemory(int64_t size, uint64_t allocated, uint64_t reserved, uint64_t device) {
  if (const int index = DeviceOf(device); index >= 0) NoteOutOfMemory(size, allocated, reserved, index);
  RealOf<decltype(OnOutOfMemory<kFunction>)>(kFunction)(size, allocated, reserved, device);
}

void* OurFunction(Function function) noexcept {
  switch (function) {
    case Function::kUsage:
      return reinterpret_cast<void*>(&OnUsage<Function::kUsage>);
    case Function::kUsageSigned:
      return reinterpret_cast<void*>(&OnUsage<Function::kUsageSigned>);
    case Function::kUsageWithoutTotals:
      return reinterpret_cast<void*>(&OnUsageWithoutTotals);
    case Function::kOutOfMemory:
      return reinterpret_cast<void*>(&OnOutOfMemory<Function::kOutOfMemory>);
    case Function::kOutOfMemorySigned:
      return reinterpret_cast<void*>(&OnOutOfMemory<Function::kOutOfMemorySigned>);
    case Function::kCount:
      break;
  }
  return nullptr;
}

}  // namespace

void* Replacement(Function function, void* real) noexcept {
  void* none = nullptr;
  auto& known = real_functions[static_cast<int>(function)];
  if (!known.compare_exchange_strong(none, real, std::memory_order_acq_rel) && none != real) return nullptr;
  return OurFunction(function);
}

void* RealFunction(Function function) noexcept {
  return real_functions[static_cast<int>(function)].load(std::memory_order_acquire);
}

void ReportLevels() noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  for (int device = 0; device < kMaxDevices; ++device) {
    Level& level = levels[device];
    const uint64_t changes = level.changes.load(kRelaxed);
    if (changes == level.reported_changes) continue;
    level.reported_changes = changes;
    AllocatorLevelEvent event{};
    event.time_ns = NowNs();
    event.allocated_bytes = level.allocated.load(kRelaxed);
    event.reserved_bytes = level.reserved.load(kRelaxed);
    event.peak_allocated_bytes = level.peak_allocated.load(kRelaxed);
    event.peak_reserved_bytes = level.peak_reserved.load(kRelaxed);
    event.device = device;
    Emit(CurrentThread(), event);
  }
}

}  // namespace gpuprobe::injector::pytorch
