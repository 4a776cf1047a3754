// Stream-ordered memory pools. See pool.h.
#include "tests/sim/core/pool.h"

#include <cupti.h>

#include <mutex>
#include <set>
#include <string>

#include "tests/sim/core/memory_state.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"
#include "tests/sim/core/truth.h"

namespace gpusim {

PoolState StateOfLocked(CUmemoryPool pool) {
  if (pool == nullptr) return {};
  return {pool, pool->used, pool->reserved, pool->release_threshold};
}

void FillPool(const PoolState& state, Activity* activity) {
  activity->pool_address = reinterpret_cast<uint64_t>(state.pool);
  activity->pool_used = state.used;
  activity->pool_reserved = state.reserved;
  activity->pool_release_threshold = state.release_threshold;
}

void WritePoolTruth(const PoolState& state, const char* event, uint64_t time_ns) {
  if (!TruthWanted() || state.pool == nullptr) return;
  std::string line;
  AppendPoolTruth(event, state.pool->device, reinterpret_cast<uint64_t>(state.pool), state.used,
                  state.reserved, time_ns, &line);
  WriteTruth(line);
}

void GiveBackLocked(CUmemoryPool pool, uint64_t keep) {
  const uint64_t surplus = Surplus(*pool, keep);
  pool->reserved -= surplus;
  if (!pool->place.in_host()) Memory().used[pool->device] -= surplus;
  if (pool->destroyed && pool->reserved == 0) Memory().pools.erase(pool);  // a handle stays what it was
}

namespace {

// A pool was made, destroyed or trimmed.
void ReportPool(const PoolState& state, int operation, const char* event) {
  Activity activity;
  activity.kind = ActivityKind::kMemoryPool;
  activity.start_ns = activity.end_ns = NowNs();
  activity.device = static_cast<uint32_t>(state.pool->device);
  activity.correlation = CurrentCorrelation();
  activity.memory_operation = operation;
  FillPool(state, &activity);
  WritePoolTruth(state, event, activity.end_ns);
  Schedule::Get().Post(activity);
}

CUmemoryPool PoolLocked(const PoolPlace& place) {
  CUmemoryPool& pool = Memory().default_pool[place];
  if (pool == nullptr) {
    pool = new CUmemPoolHandle_st;
    pool->place = place;
    pool->device = place.device();
    pool->is_default = true;
    Memory().pools.insert(pool);
  }
  return pool;
}

}  // namespace

CUmemoryPool CreatePool(const PoolPlace& place, bool shareable) {
  auto* pool = new CUmemPoolHandle_st;
  pool->place = place;
  pool->device = place.device();
  pool->shareable = shareable;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    Memory().pools.insert(pool);
  }
  ReportPool({pool, 0, 0, 0}, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, "create");
  return pool;
}

CUmemoryPool ImportedPool(int device) {
  auto* pool = new CUmemPoolHandle_st;
  pool->place = PoolOfDevice(device);
  pool->device = device;
  pool->imported = true;
  return pool;
}

// Its memory goes when nothing uses it any more; the handle is never given out again.
CUresult DestroyPool(CUmemoryPool pool) {
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    if (pool->destroyed) return CUDA_ERROR_INVALID_VALUE;
    if (pool->imported) {
      pool->destroyed = true;
      return CUDA_SUCCESS;
    }
    const auto current = Memory().current_pool.find(pool->place);
    if (current != Memory().current_pool.end() && current->second == pool)
      Memory().current_pool.erase(current);
    pool->destroyed = true;
    GiveBackLocked(pool, 0);
    state = StateOfLocked(pool);
  }
  ReportPool(state, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED, "destroy");
  return CUDA_SUCCESS;
}

CUresult TrimPool(CUmemoryPool pool, uint64_t keep) {
  if (pool == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    GiveBackLocked(pool, keep);
    state = StateOfLocked(pool);
  }
  ReportPool(state, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED, "trim");
  return CUDA_SUCCESS;
}

void TrimPoolsAfterWait() {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const std::set<CUmemoryPool> pools = Memory().pools;
  for (CUmemoryPool pool : pools) {
    if (pool->reserved <= pool->release_threshold) continue;
    const uint64_t before = pool->reserved;
    GiveBackLocked(pool, pool->release_threshold);
    if (pool->reserved != before) WritePoolTruth(StateOfLocked(pool), "wait", NowNs());
  }
}

CUresult SetPoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, const uint64_t* value) {
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *value;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*value != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*value != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high = pool->reserved;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult PoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t* value) {
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *value = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *value = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *value = pool->used_high;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *value = pool->reserved;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *value = pool->reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUmemoryPool DefaultPool(const PoolPlace& place) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  return PoolLocked(place);
}

CUmemoryPool CurrentPool(const PoolPlace& place) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().current_pool.find(place);
  return found != Memory().current_pool.end() ? found->second : PoolLocked(place);
}

void SetCurrentPool(const PoolPlace& place, CUmemoryPool pool) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().current_pool[place] = pool;
}

}  // namespace gpusim
