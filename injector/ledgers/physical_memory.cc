#include "injector/ledgers/physical_memory.h"

namespace gpuprobe::injector {

PhysicalMemory::Handle* PhysicalMemory::Live(uint64_t handle) noexcept {
  Handle* entry = handles_.Find(handle);
  return entry != nullptr && entry->references + entry->mappings != 0 ? entry : nullptr;
}

bool PhysicalMemory::Created(uint64_t handle, uint64_t time_ns) noexcept {
  uint32_t owed = 0;
  if (const Handle* before = handles_.Find(handle); before != nullptr)
    owed = before->owed + before->references;
  if (handles_.Insert(handle, {time_ns, 1, 0, owed, 0, 0}) != nullptr) return true;
  CountLoss(wire::LossReason::kLossDefinitionsFull);
  return false;
}

void PhysicalMemory::Retained(uint64_t handle) noexcept {
  if (Handle* entry = Live(handle); entry != nullptr) AddReference(entry, &entry->references);
}

void PhysicalMemory::Imported(uint64_t handle, uint64_t time_ns) noexcept {
  Handle* entry = Live(handle);
  if (entry == nullptr) {
    Created(handle, time_ns);
    return;
  }
  if (entry->imported_ns == 0) entry->imported_ns = time_ns;
  AddReference(entry, &entry->references);
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
  return DropReference(handle, entry, &entry->references, began_ns);
}

// The last reference from before an import, released by a call that began before the import: the handle now
// belongs to other memory.
bool PhysicalMemory::DropReference(uint64_t handle, Handle* entry, uint32_t* count,
                                   uint64_t began_ns) noexcept {
  --*count;
  if (entry->imported_ns != 0) {
    const bool before = began_ns != 0 && began_ns < entry->imported_ns;
    const bool taken_over = before && entry->references + entry->mappings == entry->since_import;
    if (!before) --entry->since_import;
    if (entry->since_import == 0 || taken_over) entry->imported_ns = entry->since_import = 0;
    if (taken_over) return true;
  }
  return EndIfUnused(handle, *entry);
}

bool PhysicalMemory::Unreferenced(const Mapping& mapping, uint64_t began_ns) noexcept {
  Handle* entry = Live(mapping.handle);
  if (entry == nullptr || entry->since_ns != mapping.handle_since_ns || entry->mappings == 0) return false;
  return DropReference(mapping.handle, entry, &entry->mappings, began_ns != 0 ? began_ns : mapping.since_ns);
}

}  // namespace gpuprobe::injector
