#include "injector/rows/pool_levels.h"

#include "injector/base/losses.h"

namespace gpuprobe::injector {

namespace {

// Keeps the highest value, and the earliest time of it, in whatever order they come.
void Raise(uint64_t bytes, uint64_t time_ns, uint64_t* peak_bytes, uint64_t* peak_ns) noexcept {
  if (bytes < *peak_bytes || (bytes == *peak_bytes && *peak_ns != 0 && time_ns >= *peak_ns)) return;
  *peak_bytes = bytes;
  *peak_ns = time_ns;
}

}  // namespace

// The place of the sample's pool, or a new one. An address is given out again once its pool is destroyed;
// until then releases are still reported, even those of a destroyed pool.
PoolLevel* PoolLevels::PoolFor(const PoolSample& sample) noexcept {
  PoolLevel* free = nullptr;
  PoolLevel* found = nullptr;
  for (size_t i = 0; i < count_; ++i) {
    PoolLevel& pool = pools_[i];
    const bool fits = pool.address == sample.address && sample.time_ns >= pool.since_ns;
    if (fits && (found == nullptr || pool.since_ns > found->since_ns)) found = &pool;
    if (pool.destroyed && !pool.changed && (free == nullptr || pool.time_ns < free->time_ns)) free = &pool;
  }
  const bool another = found != nullptr && found->destroyed && sample.operation == PoolOperation::kCreate;
  if (found != nullptr && !another) return found;
  if (free == nullptr && count_ < kMaxPools) free = &pools_[count_++];
  if (free == nullptr) {
    if (!full_) CountLoss(wire::LossReason::kLossDefinitionsFull);
    full_ = true;
    return nullptr;
  }
  *free = {};
  free->address = sample.address;
  free->device = sample.device;
  free->pool = next_pool_++;
  if (sample.operation == PoolOperation::kCreate) free->since_ns = sample.time_ns;
  return free;
}

void PoolLevels::Note(const PoolSample& sample) noexcept {
  PoolLevel* pool = PoolFor(sample);
  if (pool == nullptr) return;
  if (!pool->changed) {
    pool->changed = true;
    ++changed_;
  }
  if (sample.operation == PoolOperation::kTrim) ++pool->trims;
  if (sample.operation == PoolOperation::kDestroy) pool->destroyed = true;
  Raise(sample.used_bytes, sample.time_ns, &pool->peak_used_bytes, &pool->peak_used_ns);
  Raise(sample.reserved_bytes, sample.time_ns, &pool->peak_reserved_bytes, &pool->peak_reserved_ns);
  if (sample.time_ns < pool->time_ns) return;
  pool->time_ns = sample.time_ns;
  pool->used_bytes = sample.used_bytes;
  pool->reserved_bytes = sample.reserved_bytes;
  pool->release_threshold_bytes = sample.release_threshold_bytes;
}

void PoolLevels::TellAgain() noexcept {
  changed_ = 0;
  for (size_t i = 0; i < count_; ++i) {
    pools_[i].changed = true;
    ++changed_;
  }
}

}  // namespace gpuprobe::injector
