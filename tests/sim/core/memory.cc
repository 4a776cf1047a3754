#include "tests/sim/core/memory.h"

#include <cupti.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/core/graph_memory.h"
#include "tests/sim/core/knobs.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"
#include "tests/sim/core/truth.h"

namespace gpusim {
namespace {

struct State {
  std::mutex mutex;
  std::map<uint64_t, Range> ranges;  // by base
  std::map<int, uint64_t> used;      // by device
  std::map<int, CUmemoryPool> default_pool;
  std::map<int, CUmemoryPool> current_pool;
  std::set<CUmemoryPool> pools;  // all that hold memory or can be allocated from
};

State& Memory() {
  static auto* state = new State;
  return *state;
}

std::atomic<uint64_t> allocations{0};

// GPUSIM_FAULT=oom=N: the N-th allocation of the process (from 0) that needs device memory is refused.
bool AllocationFails() {
  const char* value = nullptr;
  const uint64_t number = allocations.fetch_add(1, std::memory_order_relaxed);
  return FaultIs("oom", &value) && std::strtoull(value, nullptr, 10) == number;
}

const char* NameOf(MemoryClass memory) {
  switch (memory) {
    case MemoryClass::kDevice:
      return "device";
    case MemoryClass::kPinned:
    case MemoryClass::kRegistered:
      return "pinned";
    case MemoryClass::kManaged:
      return "managed";
    case MemoryClass::kPool:
      return "pool";
    case MemoryClass::kArray:
      return "array";
    case MemoryClass::kVmm:
      return "vmm";
    case MemoryClass::kGraph:
      return "graph";
  }
  return "device";
}

int ActivityKindOf(MemoryClass memory) {
  switch (memory) {
    case MemoryClass::kPinned:
    case MemoryClass::kRegistered:
      return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case MemoryClass::kManaged:
      return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    case MemoryClass::kArray:
      return CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
    default:
      return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  }
}

bool NeedsDeviceMemory(MemoryClass memory) {
  return memory != MemoryClass::kPinned && memory != MemoryClass::kRegistered;
}

uint64_t MappedBytes(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (std::max<uint64_t>(bytes, 1) + page - 1) / page * page;
}

// Untouched pages cost nothing and read as zero.
void* Map(uint64_t bytes) {
  void* memory = mmap(nullptr, MappedBytes(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

bool ReserveLocked(int device, uint64_t bytes) {
  uint64_t& used = Memory().used[device];
  if (bytes > GetKnobs().memory_bytes - used) return false;
  used += bytes;
  return true;
}

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

void Report(const Range& range, bool is_free, bool failed, const PoolState& pool = {}) {
  Activity activity;
  FillPool(pool, &activity);
  activity.kind = ActivityKind::kMemory;
  activity.start_ns = activity.end_ns = NowNs();
  activity.device = static_cast<uint32_t>(range.device);
  activity.context_uid = range.context != nullptr ? range.context->uid : 0;
  activity.correlation = CurrentCorrelation();
  activity.bytes = range.bytes;
  activity.address = range.base;
  activity.dst_memory = ActivityKindOf(range.memory);
  activity.memory_operation = is_free ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE
                                      : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  activity.asynchronous = range.memory == MemoryClass::kPool;
  if (TruthWanted()) {
    std::string line;
    AppendMemoryTruth(is_free, NameOf(range.memory), range.bytes, range.base, activity.end_ns,
                      activity.device, activity.correlation, failed, &line);
    WriteTruth(line);
  }
  if (!failed) WritePoolTruth(pool, is_free ? "free" : "alloc", activity.end_ns);
  if (!failed) Schedule::Get().Post(activity);
}

CUresult AllocateFor(CUctx_st* context, int device, CUmemoryPool pool, MemoryClass memory, uint64_t bytes,
                     unsigned host_flags, uint64_t* address, uint64_t asked_bytes = 0) {
  Range range{0, bytes, memory, device, context, pool, host_flags};
  bool reserved = true;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const uint64_t needed = pool != nullptr ? Growth(*pool, bytes) : bytes;
    if (NeedsDeviceMemory(memory)) reserved = !AllocationFails() && ReserveLocked(device, needed);
    void* mapped = reserved ? Map(bytes) : nullptr;
    if (mapped != nullptr) {
      range.base = reinterpret_cast<uint64_t>(mapped);
      Memory().ranges[range.base] = range;
      if (pool != nullptr) {
        pool->used += bytes;
        pool->busy += bytes;
        pool->reserved += needed;
        pool->used_high = std::max(pool->used_high, pool->used);
        pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
      }
    } else if (reserved && NeedsDeviceMemory(memory)) {
      Memory().used[device] -= needed;
    }
    state = StateOfLocked(pool);
  }
  if (range.base == 0 && asked_bytes != 0) range.bytes = asked_bytes;
  Report(range, false, range.base == 0, state);
  if (range.base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = range.base;
  return CUDA_SUCCESS;
}

void GiveBackLocked(CUmemoryPool pool, uint64_t keep) {
  const uint64_t surplus = Surplus(*pool, keep);
  pool->reserved -= surplus;
  Memory().used[pool->device] -= surplus;
  if (pool->destroyed && pool->reserved == 0) Memory().pools.erase(pool);  // a handle stays what it was
}

// Nobody works on it any more. What a pool gave goes back to the pool.
void DropLocked(const Range& range) {
  if (range.pool != nullptr) {
    range.pool->busy -= range.bytes;
    if (range.pool->destroyed) GiveBackLocked(range.pool, 0);
  } else if (NeedsDeviceMemory(range.memory)) {
    Memory().used[range.device] -= range.bytes;
  }
  if (range.memory != MemoryClass::kRegistered) {
    auto* mapped = reinterpret_cast<void*>(range.base);  // NOLINT(performance-no-int-to-ptr)
    munmap(mapped, MappedBytes(range.bytes));
  }
}

CUmemoryPool PoolLocked(int device) {
  CUmemoryPool& pool = Memory().default_pool[device];
  if (pool == nullptr) {
    pool = new CUmemPoolHandle_st;
    pool->device = device;
    pool->is_default = true;
    Memory().pools.insert(pool);
  }
  return pool;
}

}  // namespace

CUresult Allocate(MemoryClass memory, uint64_t bytes, unsigned host_flags, uint64_t* address,
                  uint64_t asked_bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  return AllocateFor(context, context->device, nullptr, memory, bytes, host_flags, address, asked_bytes);
}

CUresult AllocateFromPool(CUmemoryPool pool, uint64_t bytes, uint64_t* address) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  const int device = pool != nullptr ? pool->device : context->device;
  return AllocateFor(context, device, pool != nullptr ? pool : CurrentPool(device), MemoryClass::kPool, bytes,
                     0, address);
}

CUresult Free(MemoryClass memory, uint64_t address) {
  if (address == 0) return CUDA_SUCCESS;
  Range range;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const auto found = Memory().ranges.find(address);
    if (found == Memory().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
    if (range.memory == MemoryClass::kGraph && memory == MemoryClass::kDevice)
      return ReleaseGraphAllocation(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    // cuMemFree takes device, managed and pool memory alike.
    const bool fits = range.memory == memory ||
                      (memory == MemoryClass::kDevice &&
                       (range.memory == MemoryClass::kManaged || range.memory == MemoryClass::kPool));
    if (!fits) return CUDA_ERROR_INVALID_VALUE;
    Memory().ranges.erase(found);
  }
  if (range.context != nullptr && IsLive(range.context))
    WaitForContext(range.context);  // queued work may still use it
  PoolState state;
  if (range.pool != nullptr) {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    range.pool->used -= range.bytes;
    state = StateOfLocked(range.pool);
  }
  Report(range, true, false, state);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  DropLocked(range);
  return CUDA_SUCCESS;
}

CUresult BeginFreeToPool(uint64_t address) {
  Range range;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const auto found = Memory().ranges.find(address);
    if (found == Memory().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
    if (range.memory == MemoryClass::kGraph)
      return ReleaseGraphAllocation(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (range.memory != MemoryClass::kPool && range.memory != MemoryClass::kDevice)
      return CUDA_ERROR_INVALID_VALUE;
    if (range.pool != nullptr) range.pool->used -= range.bytes;
    state = StateOfLocked(range.pool);
  }
  Report(range, true, false, state);
  return CUDA_SUCCESS;
}

void TakeBack(uint64_t address) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().ranges.find(address);
  if (found == Memory().ranges.end()) return;
  const Range range = found->second;
  if (range.memory == MemoryClass::kGraph) return;
  Memory().ranges.erase(found);
  DropLocked(range);
}

CUresult RegisterHost(void* address, uint64_t bytes, unsigned flags) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  const Range range{reinterpret_cast<uint64_t>(address),
                    bytes,
                    MemoryClass::kRegistered,
                    context->device,
                    context,
                    nullptr,
                    flags};
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    if (!Memory().ranges.emplace(range.base, range).second) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  Report(range, false, false);
  return CUDA_SUCCESS;
}

CUresult UnregisterHost(void* address) {
  Range range;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const auto found = Memory().ranges.find(reinterpret_cast<uint64_t>(address));
    if (found == Memory().ranges.end() || found->second.memory != MemoryClass::kRegistered) {
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    range = found->second;
    Memory().ranges.erase(found);
  }
  Report(range, true, false);
  return CUDA_SUCCESS;
}

void FreeMemoryOfContext(CUcontext context) {
  std::vector<Range> gone;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    for (auto at = Memory().ranges.begin(); at != Memory().ranges.end();) {
      const Range& range = at->second;
      if (range.context == context && range.memory != MemoryClass::kVmm) {
        if (range.pool != nullptr) range.pool->used -= range.bytes;
        DropLocked(range);
        gone.push_back(range);
        at = Memory().ranges.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (const Range& range : gone) Report(range, true, false);
}

bool FindRange(uint64_t address, Range* range) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  auto after = Memory().ranges.upper_bound(address);
  if (after == Memory().ranges.begin()) return false;
  const Range& candidate = std::prev(after)->second;
  if (address >= candidate.base + candidate.bytes) return false;
  *range = candidate;
  return true;
}

uint64_t AllocateGlobal(int device, uint64_t bytes) {
  void* mapped = Map(bytes);
  if (mapped == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto base = reinterpret_cast<uint64_t>(mapped);
  Memory().ranges[base] = Range{base, bytes, MemoryClass::kDevice, device, nullptr, nullptr, 0};
  return base;
}

uint64_t MapGraphMemory(int device, uint64_t bytes) {
  void* mapped = Map(bytes);
  if (mapped == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto base = reinterpret_cast<uint64_t>(mapped);
  Memory().ranges[base] = Range{base, bytes, MemoryClass::kGraph, device, nullptr, nullptr, 0};
  return base;
}

bool ReserveDeviceMemory(int device, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  return !AllocationFails() && ReserveLocked(device, bytes);
}

void ReturnDeviceMemory(int device, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().used[device] -= bytes;
}

void MemoryInfo(int device, uint64_t* free_bytes, uint64_t* total_bytes) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  *total_bytes = GetKnobs().memory_bytes;
  *free_bytes = *total_bytes - Memory().used[device];
}

CUresult AccountVmm(int device, uint64_t bytes, uint64_t id, bool in_host) {
  bool reserved = in_host;
  if (!in_host) {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    reserved = !AllocationFails() && ReserveLocked(device, bytes);
  }
  const MemoryClass memory = in_host ? MemoryClass::kPinned : MemoryClass::kVmm;
  Report(Range{id, bytes, memory, device, CurrentContextOrNull(), nullptr, 0}, false, !reserved);
  return reserved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void ReleaseVmm(int device, uint64_t bytes, uint64_t id, bool in_host) {
  const MemoryClass memory = in_host ? MemoryClass::kPinned : MemoryClass::kVmm;
  Report(Range{id, bytes, memory, device, CurrentContextOrNull(), nullptr, 0}, true, false);
  if (in_host) return;
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().used[device] -= bytes;
}

void NoteMapping(uint64_t address, uint64_t bytes, int device) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().ranges[address] = Range{address, bytes, MemoryClass::kVmm, device, nullptr, nullptr, 0};
}

void ForgetMapping(uint64_t address) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().ranges.erase(address);
}

CUmemoryPool CreatePool(int device) {
  auto* pool = new CUmemPoolHandle_st;
  pool->device = device;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    Memory().pools.insert(pool);
  }
  ReportPool({pool, 0, 0, 0}, CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, "create");
  return pool;
}

// Its memory goes when nothing uses it any more; the handle is never given out again.
CUresult DestroyPool(CUmemoryPool pool) {
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    if (pool->destroyed) return CUDA_ERROR_INVALID_VALUE;
    const auto current = Memory().current_pool.find(pool->device);
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
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
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

CUmemoryPool DefaultPool(int device) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  return PoolLocked(device);
}

CUmemoryPool CurrentPool(int device) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().current_pool.find(device);
  return found != Memory().current_pool.end() ? found->second : PoolLocked(device);
}

void SetCurrentPool(int device, CUmemoryPool pool) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().current_pool[device] = pool;
}

}  // namespace gpusim
