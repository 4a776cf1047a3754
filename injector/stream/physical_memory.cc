#include "injector/stream/physical_memory.h"

namespace gpuprobe::injector {

PhysicalMemory::Handle* PhysicalMemory::Live(uint64_t handle) noexcept {
  Handle* entry = handles_.Find(handle);
  return entry != nullptr && entry->references + entry->mappings != 0 ? entry : nullptr;
}

bool PhysicalMemory::Created(uint64_t handle, uint64_t time_ns) noexcept {
  uint32_t owed = 0;
  if (const Handle* before = handles_.Find(handle); before != nullptr)
    owed = before->owed + before->references;
  if (handles_.Insert(handle, {time_ns, 1, 0, owed}) != nullptr) return true;
  CountLoss(wire::LossReason::kLossDefinitionsFull);
  return false;
}

void PhysicalMemory::Retained(uint64_t handle) noexcept {
  if (Handle* entry = Live(handle); entry != nullptr) ++entry->references;
}

void PhysicalMemory::HandleMade(uint64_t handle, uint64_t time_ns) noexcept {
  if (Live(handle) != nullptr) return Retained(handle);
  Created(handle, time_ns);
}

uint64_t PhysicalMemory::HandleAt(uint64_t address) noexcept {
  uint64_t handle = 0;
  mappings_.ForEach([&](uint64_t start, const Mapping& mapping) {
    if (address >= start && address - start < mapping.bytes) handle = mapping.handle;
  });
  return handle;
}

bool PhysicalMemory::EndIfUnused(uint64_t handle, const Handle& entry) noexcept {
  if (entry.references + entry.mappings != 0) return false;
  if (entry.owed == 0) handles_.Erase(handle);
  return true;
}

bool PhysicalMemory::Released(uint64_t handle, uint64_t began_ns) noexcept {
  Handle* entry = handles_.Find(handle);
  if (entry == nullptr) return false;
  const bool live = entry->references + entry->mappings != 0;
  if (entry->owed != 0 && (!live || (began_ns != 0 && began_ns < entry->since_ns))) {
    --entry->owed;
    if (!live && entry->owed == 0) handles_.Erase(handle);
    return false;
  }
  if (entry->references == 0) return false;
  --entry->references;
  return EndIfUnused(handle, *entry);
}

bool PhysicalMemory::Unreferenced(const Mapping& mapping) noexcept {
  Handle* entry = Live(mapping.handle);
  if (entry == nullptr || entry->since_ns != mapping.handle_since_ns || entry->mappings == 0) return false;
  --entry->mappings;
  return EndIfUnused(mapping.handle, *entry);
}

}  // namespace gpuprobe::injector
