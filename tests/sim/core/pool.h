// Stream-ordered memory pools: what allocations use, and what the pool holds of the device's memory for them.
//
// A pool grows by whole granules when an allocation does not fit, and gives granules back when the host waits
// for the device and the pool holds more than its release threshold, when it is trimmed, and when it was
// destroyed and nothing uses it any more. Memory that was released in stream order is no longer used, and
// cannot be given back before the stream got there (`busy`). Pools of the host, and of managed memory, work
// alike. An imported pool is another process's: it has a handle here and no memory. Only memory.cc and
// pool.cc touch a pool, under the mutex of memory_state.h.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace gpusim {

// The kind and location of a pool's memory.
struct PoolPlace {
  CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED;
  CUmemLocationType location = CU_MEM_LOCATION_TYPE_DEVICE;
  int id = 0;

  bool in_host() const {
    return type == CU_MEM_ALLOCATION_TYPE_PINNED && location != CU_MEM_LOCATION_TYPE_DEVICE;
  }
  bool managed() const { return type == CU_MEM_ALLOCATION_TYPE_MANAGED; }
  int device() const { return location == CU_MEM_LOCATION_TYPE_DEVICE ? id : 0; }
  friend bool operator==(const PoolPlace&, const PoolPlace&) = default;
  friend bool operator<(const PoolPlace& a, const PoolPlace& b) {
    return std::tie(a.type, a.location, a.id) < std::tie(b.type, b.location, b.id);
  }
};

inline PoolPlace PoolOfDevice(int device) {
  return {CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, device};
}

}  // namespace gpusim

struct CUmemPoolHandle_st {
  gpusim::PoolPlace place;
  int device = 0;
  uint64_t used = 0;
  uint64_t used_high = 0;
  uint64_t busy = 0;  // used, and released memory that a stream still works on
  uint64_t reserved = 0;
  uint64_t reserved_high = 0;
  uint64_t release_threshold = 0;
  bool is_default = false;
  bool destroyed = false;
  bool shareable = false;  // by a file descriptor
  bool imported = false;
};

namespace gpusim {

constexpr uint64_t kPoolGranule = uint64_t{2} << 20;

inline uint64_t Granules(uint64_t bytes) { return (bytes + kPoolGranule - 1) / kPoolGranule * kPoolGranule; }

// What the pool needs of the device for `bytes` more.
inline uint64_t Growth(const CUmemPoolHandle_st& pool, uint64_t bytes) {
  const uint64_t needed = Granules(pool.busy + bytes);
  return needed > pool.reserved ? needed - pool.reserved : 0;
}

// What the pool can give back and keep `keep` bytes.
inline uint64_t Surplus(const CUmemPoolHandle_st& pool, uint64_t keep) {
  const uint64_t needed = std::max(Granules(pool.busy), Granules(keep));
  return pool.reserved > needed ? pool.reserved - needed : 0;
}

// A pool as it is at one moment.
struct PoolState {
  CUmemoryPool pool = nullptr;
  uint64_t used = 0;
  uint64_t reserved = 0;
  uint64_t release_threshold = 0;
};

CUmemoryPool CreatePool(const PoolPlace& place, bool shareable);
CUmemoryPool ImportedPool(int device);
CUresult DestroyPool(CUmemoryPool pool);
CUresult TrimPool(CUmemoryPool pool, uint64_t keep);
CUresult SetPoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, const uint64_t* value);
CUresult PoolAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t* value);
// The host waited for the device: what is above the release thresholds goes back.
void TrimPoolsAfterWait();

CUmemoryPool DefaultPool(const PoolPlace& place);
CUmemoryPool CurrentPool(const PoolPlace& place);
void SetCurrentPool(const PoolPlace& place, CUmemoryPool pool);

}  // namespace gpusim
