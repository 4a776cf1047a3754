#include "tests/sim/core/memory.h"

#include <cupti.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/sim/core/graph_memory.h"
#include "tests/sim/core/knobs.h"
#include "tests/sim/core/memory_state.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"
#include "tests/sim/core/truth.h"

namespace gpusim {
namespace {

std::atomic<uint64_t> allocations{0};

// GPUSIM_FAULT=oom=N: the N-th allocation of the process (from 0) that needs device memory is refused.
bool AllocationFails() {
  const char* value = nullptr;
  const uint64_t number = allocations.fetch_add(1, std::memory_order_relaxed);
  return FaultIs("oom", &value) && std::strtoull(value, nullptr, 10) == number;
}

// GPUSIM_FAULT=pinned_mib=N: there is room for so much page-locked memory.
uint64_t MostPinned() {
  const char* value = nullptr;
  return FaultIs("pinned_mib", &value) ? std::strtoull(value, nullptr, 10) << 20 : UINT64_MAX;
}

// In the truth's words.
const char* NameOf(const Range& range) {
  if (range.pool != nullptr && range.pool->place.in_host()) return "pinned";
  if (range.pool != nullptr && range.pool->place.managed()) return "managed";
  switch (range.memory) {
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
    case MemoryClass::kImported:
    case MemoryClass::kOpened:
      return "imported";
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

bool IsOfHost(const Range& range) {
  return range.memory == MemoryClass::kPinned || range.memory == MemoryClass::kRegistered ||
         (range.pool != nullptr && range.pool->place.in_host());
}

bool IsOfAnotherProcess(const Range& range) {
  return range.memory == MemoryClass::kImported || range.memory == MemoryClass::kOpened;
}

bool TakePinnedLocked(uint64_t bytes) {
  if (bytes > MostPinned() - std::min(MostPinned(), Memory().pinned)) return false;
  Memory().pinned += bytes;
  return true;
}

}  // namespace

MemoryState& Memory() {
  static auto* state = new MemoryState;
  return *state;
}

uint64_t MappedBytes(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return (std::max<uint64_t>(bytes, 1) + page - 1) / page * page;
}

namespace {

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
    AppendMemoryTruth(is_free, NameOf(range), range.bytes, range.base, activity.end_ns, activity.device,
                      activity.correlation, failed, &line);
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
    reserved =
        IsOfHost(range) ? TakePinnedLocked(needed) : !AllocationFails() && ReserveLocked(device, needed);
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
    } else if (reserved) {
      (IsOfHost(range) ? Memory().pinned : Memory().used[device]) -= needed;
    }
    state = StateOfLocked(pool);
  }
  if (range.base == 0 && asked_bytes != 0) range.bytes = asked_bytes;
  Report(range, false, range.base == 0, state);
  if (range.base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = range.base;
  return CUDA_SUCCESS;
}

}  // namespace

void DropLocked(const Range& range) {
  if (range.pool != nullptr) {
    range.pool->busy -= range.bytes;
    if (range.pool->destroyed) GiveBackLocked(range.pool, 0);
  } else if (IsOfHost(range)) {
    Memory().pinned -= range.bytes;
  } else if (!IsOfAnotherProcess(range)) {
    Memory().used[range.device] -= range.bytes;
  }
  if (range.file >= 0) close(range.file);
  if (range.memory != MemoryClass::kRegistered) {
    auto* mapped = reinterpret_cast<void*>(range.base);  // NOLINT(performance-no-int-to-ptr)
    munmap(mapped, MappedBytes(range.bytes));
  }
}

namespace {

// Such an address stays what it is. Graph memory has a mutex of its own, which is never wanted with this one
// held.
bool IsOfGraph(uint64_t address) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  const auto found = Memory().ranges.find(address);
  return found != Memory().ranges.end() && found->second.memory == MemoryClass::kGraph;
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
  if (pool != nullptr && pool->imported) return CUDA_ERROR_INVALID_VALUE;
  const int device = pool != nullptr ? pool->device : context->device;
  return AllocateFor(context, device, pool != nullptr ? pool : CurrentPool(PoolOfDevice(device)),
                     MemoryClass::kPool, bytes, 0, address);
}

CUresult Free(MemoryClass memory, uint64_t address) {
  if (address == 0) return CUDA_SUCCESS;
  if (memory == MemoryClass::kDevice && IsOfGraph(address))
    return ReleaseGraphAllocation(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  Range range;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const auto found = Memory().ranges.find(address);
    if (found == Memory().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
    // cuMemFree takes device, managed and pool memory alike.
    const bool fits = range.memory == memory ||
                      (memory == MemoryClass::kDevice &&
                       (range.memory == MemoryClass::kManaged || range.memory == MemoryClass::kPool ||
                        range.memory == MemoryClass::kImported));
    if (!fits || range.given_back) return CUDA_ERROR_INVALID_VALUE;
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
  if (!IsOfAnotherProcess(range)) Report(range, true, false, state);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  DropLocked(range);
  return CUDA_SUCCESS;
}

CUresult BeginFreeToPool(uint64_t address) {
  if (IsOfGraph(address)) return ReleaseGraphAllocation(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  Range range;
  PoolState state;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    const auto found = Memory().ranges.find(address);
    if (found == Memory().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.given_back) return CUDA_ERROR_INVALID_VALUE;
    range = found->second;
    if (range.memory != MemoryClass::kPool && range.memory != MemoryClass::kDevice &&
        range.memory != MemoryClass::kImported)
      return CUDA_ERROR_INVALID_VALUE;
    found->second.given_back = true;
    if (range.memory == MemoryClass::kImported) return CUDA_SUCCESS;
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
  bool refused = false;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    if (Memory().ranges.count(range.base) != 0) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    refused = !TakePinnedLocked(bytes);
    if (!refused) Memory().ranges.emplace(range.base, range);
  }
  Report(range, false, refused);
  return refused ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
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
    Memory().pinned -= range.bytes;
  }
  Report(range, true, false);
  return CUDA_SUCCESS;
}

// The truth has the end of each before its address can be given out again.
void FreeMemoryOfContext(CUcontext context) {
  std::vector<Range> gone;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    for (auto at = Memory().ranges.begin(); at != Memory().ranges.end();) {
      const Range& range = at->second;
      // What is given back goes when another context's stream comes to it: that of this one has.
      if (range.context == context && range.memory != MemoryClass::kVmm && !range.given_back) {
        if (range.pool != nullptr) range.pool->used -= range.bytes;
        gone.push_back(range);
        at = Memory().ranges.erase(at);
      } else {
        ++at;
      }
    }
  }
  for (const Range& range : gone) {
    if (!IsOfAnotherProcess(range)) Report(range, true, false);
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    DropLocked(range);
  }
  ReturnGraphMemoryOfContext(context);
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
  bool reserved = false;
  {
    const std::lock_guard<std::mutex> lock(Memory().mutex);
    reserved = in_host ? TakePinnedLocked(bytes) : !AllocationFails() && ReserveLocked(device, bytes);
  }
  const MemoryClass memory = in_host ? MemoryClass::kPinned : MemoryClass::kVmm;
  Report(Range{id, bytes, memory, device, CurrentContextOrNull(), nullptr, 0}, false, !reserved);
  return reserved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void ReleaseVmm(int device, uint64_t bytes, uint64_t id, bool in_host) {
  const MemoryClass memory = in_host ? MemoryClass::kPinned : MemoryClass::kVmm;
  Report(Range{id, bytes, memory, device, CurrentContextOrNull(), nullptr, 0}, true, false);
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  (in_host ? Memory().pinned : Memory().used[device]) -= bytes;
}

void NoteMapping(uint64_t address, uint64_t bytes, int device) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().ranges[address] = Range{address, bytes, MemoryClass::kVmm, device, nullptr, nullptr, 0};
}

void ForgetMapping(uint64_t address) {
  const std::lock_guard<std::mutex> lock(Memory().mutex);
  Memory().ranges.erase(address);
}

}  // namespace gpusim
