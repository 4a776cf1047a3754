// Stream-ordered allocation and its pools.
#include "tests/sim/core/memory.h"
#include "tests/sim/cuda/api.h"

namespace {

CUresult AllocateInOrder(CUmemoryPool pool, size_t bytes, CUstream handle, CUdeviceptr* pointer) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const gpusim::Locked locked;
    CUstream_st* stream = nullptr;
    GPUSIM_CHECK(gpusim::FindStreamLocked(handle, &stream));
    GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  }
  uint64_t address = 0;
  CUresult result = gpusim::AllocateFromPool(pool, bytes, &address);
  if (result != CUDA_SUCCESS) return result;
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace

DRIVER_STREAM_API(cuMemAllocAsync, _ptsz, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
                  (dptr, bytesize, hStream)) {
  return AllocateInOrder(nullptr, bytesize, hStream, dptr);
}

DRIVER_STREAM_API(cuMemAllocFromPoolAsync, _ptsz,
                  (CUdeviceptr * dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream),
                  (dptr, bytesize, pool, hStream)) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AllocateInOrder(pool, bytesize, hStream, dptr);
}

DRIVER_STREAM_API(cuMemFreeAsync, _ptsz, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream)) {
  if (dptr == 0) return CUDA_SUCCESS;
  {
    const gpusim::Locked locked;
    CUstream_st* stream = nullptr;
    GPUSIM_CHECK(gpusim::FindStreamLocked(hStream, &stream));
    GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  }
  GPUSIM_CHECK(gpusim::BeginFreeToPool(dptr));
  gpusim::Work work;
  work.effect = [dptr] { gpusim::TakeBack(dptr); };
  return gpusim::Issue(hStream, std::move(work), CU_GRAPH_NODE_TYPE_MEM_FREE, nullptr);
}

DRIVER_API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* poolProps), (pool, poolProps)) {
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !gpusim::IsDevice(poolProps->location.id)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *pool = new CUmemPoolHandle_st;
  (*pool)->device = poolProps->location.id;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemPoolDestroy, (CUmemoryPool pool), (pool)) {
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (gpusim::CurrentPool(pool->device) == pool)
    gpusim::SetCurrentPool(pool->device, gpusim::DefaultPool(pool->device));
  return CUDA_SUCCESS;  // allocations may outlive it, so the structure stays
}

// Memory goes back to the device when it is freed: there is never anything to trim.
DRIVER_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep), (pool, minBytesToKeep)) {
  return pool != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void* value),
           (pool, attr, value)) {
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold = *static_cast<cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return CUDA_SUCCESS;  // nothing is reused
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

DRIVER_API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void* value),
           (pool, attr, value)) {
  if (pool == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = pool->used;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = pool->used_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

DRIVER_API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc* map, size_t count),
           (pool, map, count)) {
  return pool != nullptr && map != nullptr && count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
