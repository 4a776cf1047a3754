#include "injector/memory/vmm.h"

#include <atomic>

#include "injector/stream/losses.h"

namespace gpuprobe::injector::vmm {

namespace {

constexpr uint64_t kFree = 0;
constexpr uint64_t kGone = UINT64_MAX;  // was used: a search goes on behind it
constexpr uint64_t kFilling = UINT64_MAX - 1;
constexpr size_t kProbes = 64;

struct Handle {
  std::atomic<uint64_t> key;
  std::atomic<int64_t> references;
};

struct Mapping {
  std::atomic<uint64_t> key;  // address
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> handle;
};

constinit Handle handles[kMaxHandles] = {};
constinit Mapping mappings[kMaxMappings] = {};

uint64_t Mix(uint64_t value) noexcept {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdu;
  return value ^ (value >> 33);
}

template <typename Entry, size_t kSize>
Entry* Find(Entry (&table)[kSize], uint64_t key) noexcept {
  for (size_t i = 0; i < kProbes; ++i) {
    Entry& entry = table[(Mix(key) + i) % kSize];
    const uint64_t seen = entry.key.load(std::memory_order_acquire);
    if (seen == key) return &entry;
    if (seen == kFree) return nullptr;
  }
  return nullptr;
}

// A place in state kFilling, to be published by storing its key.
template <typename Entry, size_t kSize>
Entry* Claim(Entry (&table)[kSize], uint64_t key) noexcept {
  for (size_t i = 0; i < kProbes; ++i) {
    Entry& entry = table[(Mix(key) + i) % kSize];
    uint64_t seen = entry.key.load(std::memory_order_relaxed);
    if (seen != kFree && seen != kGone && seen != key) continue;
    if (entry.key.compare_exchange_strong(seen, kFilling, std::memory_order_acquire)) return &entry;
  }
  CountLoss(wire::LossReason::kLossDefinitionsFull);
  return nullptr;
}

bool IsKey(uint64_t value) noexcept { return value != kFree && value < kFilling; }

// True when this was the last reference.
bool Drop(uint64_t handle) noexcept {
  Handle* entry = Find(handles, handle);
  if (entry == nullptr || entry->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  entry->key.store(kGone, std::memory_order_release);
  return true;
}

}  // namespace

void Created(uint64_t handle) noexcept {
  if (!IsKey(handle)) return;
  Handle* entry = Claim(handles, handle);
  if (entry == nullptr) return;
  entry->references.store(1, std::memory_order_relaxed);
  entry->key.store(handle, std::memory_order_release);
}

void Retained(uint64_t handle) noexcept {
  if (Handle* entry = Find(handles, handle); entry != nullptr)
    entry->references.fetch_add(1, std::memory_order_relaxed);
}

bool Released(uint64_t handle) noexcept { return IsKey(handle) && Drop(handle); }

void Mapped(uint64_t address, uint64_t bytes, uint64_t handle) noexcept {
  // Imported handles are not new memory and are not in the table.
  if (!IsKey(address) || Find(handles, handle) == nullptr) return;
  Mapping* entry = Claim(mappings, address);
  if (entry == nullptr) return;
  entry->bytes.store(bytes, std::memory_order_relaxed);
  entry->handle.store(handle, std::memory_order_relaxed);
  entry->key.store(address, std::memory_order_release);
  Retained(handle);
}

size_t Unmapped(uint64_t address, uint64_t bytes, uint64_t* ended, size_t capacity) noexcept {
  size_t count = 0;
  const uint64_t end = address + bytes;
  while (address < end && IsKey(address)) {
    Mapping* entry = Find(mappings, address);
    if (entry == nullptr) break;
    const uint64_t size = entry->bytes.load(std::memory_order_relaxed);
    const uint64_t handle = entry->handle.load(std::memory_order_relaxed);
    entry->key.store(kGone, std::memory_order_release);
    if (Drop(handle) && count < capacity) ended[count++] = handle;
    if (size == 0) break;
    address += size;
  }
  return count;
}

void ClearForTest() noexcept {
  for (Handle& entry : handles) entry.key.store(kFree);
  for (Mapping& entry : mappings) entry.key.store(kFree);
}

}  // namespace gpuprobe::injector::vmm
