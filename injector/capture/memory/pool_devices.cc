#include "injector/capture/memory/pool_devices.h"

#include <atomic>

#include "injector/base/flat_map.h"
#include "injector/base/losses.h"

namespace gpuprobe::injector {

namespace {

constexpr int kProbes = 64;  // places that are looked at

struct Entry {
  std::atomic<const void*> pool;
  std::atomic<PoolPlace> place;
};

constinit Entry entries[kMaxPools] = {};

Entry& EntryOf(const void* pool, int probe) noexcept {
  return entries[(MixBits(reinterpret_cast<uint64_t>(pool)) + static_cast<uint64_t>(probe)) % kMaxPools];
}

}  // namespace

void NotePool(const void* pool, PoolPlace place) noexcept {
  if (pool == nullptr) return;
  for (int i = 0; i < kProbes; ++i) {
    Entry& entry = EntryOf(pool, i);
    const void* seen = entry.pool.load(std::memory_order_acquire);
    // No thread allocates from a pool that is still being created.
    if (seen == nullptr && !entry.pool.compare_exchange_strong(seen, pool, std::memory_order_acq_rel) &&
        seen != pool) {
      continue;
    }
    if (seen != nullptr && seen != pool) continue;
    entry.place.store(place, std::memory_order_release);
    return;
  }
  CountLoss(wire::LossReason::kLossDefinitionsFull);
}

PoolPlace PlaceOfPool(const void* pool) noexcept {
  for (int i = 0; pool != nullptr && i < kProbes; ++i) {
    const Entry& entry = EntryOf(pool, i);
    const void* seen = entry.pool.load(std::memory_order_acquire);
    if (seen == pool) return entry.place.load(std::memory_order_acquire);
    if (seen == nullptr) break;
  }
  return {PoolMemory::kUnknown, -1};
}

}  // namespace gpuprobe::injector
