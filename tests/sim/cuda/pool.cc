// Stream-ordered allocation and its pools.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/sim/core/graph.h"
#include "tests/sim/core/graph_memory.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/core/shared_memory.h"
#include "tests/sim/cuda/api.h"

namespace {

// In a stream that is captured: a node, whose memory comes with the graph's launch.
CUresult AddNodeInCapture(gpusim::Locked& locked, CUstream_st* stream, CUgraphNodeType type, int device,
                          uint64_t bytes, uint64_t* address) {
  if (stream->capture->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraphNode node = gpusim::AddCapturedLocked(stream, gpusim::Work{}, type);
  node->memory_address = *address;
  node->memory_bytes = bytes;
  node->memory_device = device;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) gpusim::PlaceGraphMemoryLocked(node);
  *address = node->memory_address;
  locked.Lock().unlock();
  gpusim::NotifyNode(node);
  locked.Lock().lock();
  return CUDA_SUCCESS;
}

CUresult AllocateInOrder(CUmemoryPool pool, size_t bytes, CUstream handle, CUdeviceptr* pointer) {
  if (pointer == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  {
    gpusim::Locked locked;
    CUstream_st* stream = nullptr;
    GPUSIM_CHECK(gpusim::FindStreamLocked(handle, &stream));
    if (stream->capture != nullptr) {
      const int device = pool != nullptr ? pool->device : stream->context->device;
      GPUSIM_CHECK(AddNodeInCapture(locked, stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, device, bytes, &address));
      *pointer = address;
      return CUDA_SUCCESS;
    }
    GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  }
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
    gpusim::Locked locked;
    CUstream_st* stream = nullptr;
    GPUSIM_CHECK(gpusim::FindStreamLocked(hStream, &stream));
    if (stream->capture != nullptr) {
      uint64_t address = dptr;
      return AddNodeInCapture(locked, stream, CU_GRAPH_NODE_TYPE_MEM_FREE, 0, 0, &address);
    }
    GPUSIM_CHECK(gpusim::RefuseInCaptureLocked(stream));
  }
  GPUSIM_CHECK(gpusim::BeginFreeToPool(dptr));
  gpusim::Work work;
  work.effect = [dptr] { gpusim::TakeBack(dptr); };
  return gpusim::Issue(hStream, std::move(work), CU_GRAPH_NODE_TYPE_MEM_FREE, nullptr);
}

namespace {

// Where pools can be: on a device, in the host; of managed memory anywhere or nowhere in particular.
CUresult PlaceOf(const CUmemLocation& location, CUmemAllocationType type, gpusim::PoolPlace* place) {
  const bool managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED && !managed) return CUDA_ERROR_INVALID_VALUE;
  int id = location.id;
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      if (!gpusim::IsDevice(id)) return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      break;
    case CU_MEM_LOCATION_TYPE_HOST:
      id = 0;  // is not looked at
      break;
    case CU_MEM_LOCATION_TYPE_NONE:
      if (!managed) return CUDA_ERROR_INVALID_VALUE;
      id = 0;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  *place = {type, location.type, id};
  return CUDA_SUCCESS;
}

}  // namespace

DRIVER_API(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps* poolProps), (pool, poolProps)) {
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::PoolPlace place;
  GPUSIM_CHECK(PlaceOf(poolProps->location, poolProps->allocType, &place));
  const bool shareable = poolProps->handleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      (!shareable || place != gpusim::PoolOfDevice(place.id)))
    return CUDA_ERROR_INVALID_VALUE;
  *pool = gpusim::CreatePool(place, shareable);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetDefaultMemPool,
           (CUmemoryPool * pool_out, CUmemLocation* location, CUmemAllocationType type),
           (pool_out, location, type)) {
  if (pool_out == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::PoolPlace place;
  GPUSIM_CHECK(PlaceOf(*location, type, &place));
  *pool_out = gpusim::DefaultPool(place);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetMemPool, (CUmemoryPool * pool, CUmemLocation* location, CUmemAllocationType type),
           (pool, location, type)) {
  if (pool == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::PoolPlace place;
  GPUSIM_CHECK(PlaceOf(*location, type, &place));
  *pool = gpusim::CurrentPool(place);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemSetMemPool, (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
           (location, type, pool)) {
  if (pool == nullptr || location == nullptr || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  gpusim::PoolPlace place;
  GPUSIM_CHECK(PlaceOf(*location, type, &place));
  if (pool->place != place) return CUDA_ERROR_INVALID_VALUE;
  gpusim::SetCurrentPool(place, pool);
  return CUDA_SUCCESS;
}

// The descriptor says which device; which pool each pointer is of, its own data says.
DRIVER_API(cuMemPoolExportToShareableHandle,
           (void* handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
            unsigned long long flags),
           (handle_out, pool, handleType, flags)) {
  if (handle_out == nullptr || pool == nullptr || flags != 0 || !pool->shareable ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = memfd_create("gpusim-pool", MFD_CLOEXEC);
  if (file < 0 || write(file, &pool->device, sizeof pool->device) != sizeof pool->device)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(handle_out) = file;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemPoolImportFromShareableHandle,
           (CUmemoryPool * pool_out, void* handle, CUmemAllocationHandleType handleType,
            unsigned long long flags),
           (pool_out, handle, handleType, flags)) {
  if (pool_out == nullptr || flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  int device = -1;
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(handle));
  if (pread(file, &device, sizeof device, 0) != sizeof device || !gpusim::IsDevice(device))
    return CUDA_ERROR_INVALID_VALUE;
  *pool_out = gpusim::ImportedPool(device);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemPoolExportPointer, (CUmemPoolPtrExportData * shareData_out, CUdeviceptr ptr),
           (shareData_out, ptr)) {
  if (shareData_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::SharedMemory shared;
  GPUSIM_CHECK(gpusim::Share(gpusim::MemoryClass::kPool, ptr, &shared));
  *shareData_out = {};
  std::memcpy(shareData_out, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemPoolImportPointer,
           (CUdeviceptr * ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData* shareData),
           (ptr_out, pool, shareData)) {
  if (ptr_out == nullptr || shareData == nullptr || pool == nullptr || !pool->imported)
    return CUDA_ERROR_INVALID_VALUE;
  gpusim::SharedMemory shared;
  std::memcpy(static_cast<void*>(&shared), shareData, sizeof shared);
  uint64_t address = 0;
  GPUSIM_CHECK(gpusim::Map(shared, gpusim::MemoryClass::kImported, &address));
  *ptr_out = address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemPoolDestroy, (CUmemoryPool pool), (pool)) { return gpusim::DestroyPool(pool); }

DRIVER_API(cuMemPoolTrimTo, (CUmemoryPool pool, size_t minBytesToKeep), (pool, minBytesToKeep)) {
  return gpusim::TrimPool(pool, minBytesToKeep);
}

DRIVER_API(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void* value),
           (pool, attr, value)) {
  switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return pool != nullptr && value != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
      return gpusim::SetPoolAttribute(pool, attr, static_cast<const uint64_t*>(value));
  }
}

DRIVER_API(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attr, void* value),
           (pool, attr, value)) {
  return gpusim::PoolAttribute(pool, attr, static_cast<uint64_t*>(value));
}

DRIVER_API(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc* map, size_t count),
           (pool, map, count)) {
  return pool != nullptr && map != nullptr && count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_API(cuGraphAddMemAllocNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams),
           (phGraphNode, hGraph, dependencies, numDependencies, nodeParams)) {
  if (nodeParams == nullptr || nodeParams->bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUmemLocation& location = nodeParams->poolProps.location;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || !gpusim::IsDevice(location.id))
    return CUDA_ERROR_INVALID_VALUE;
  GPUSIM_CHECK(gpusim::AddMemoryNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                     location.id, nodeParams->bytesize, &nodeParams->dptr, phGraphNode));
  return CUDA_SUCCESS;
}

DRIVER_API(cuGraphAddMemFreeNode,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            size_t numDependencies, CUdeviceptr dptr),
           (phGraphNode, hGraph, dependencies, numDependencies, dptr)) {
  CUdeviceptr address = dptr;
  return gpusim::AddMemoryNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_FREE, 0, 0,
                               &address, phGraphNode);
}

// Supports the node kinds that allocate or release memory, child graphs, and empty nodes.
DRIVER_API(cuGraphAddNode_v2,
           (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
            const CUgraphEdgeData* dependencyData, size_t numDependencies, CUgraphNodeParams* nodeParams),
           (phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams)) {
  if (nodeParams == nullptr || dependencyData != nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      const CUmemLocation& location = nodeParams->alloc.poolProps.location;
      if (nodeParams->alloc.bytesize == 0 || location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
          !gpusim::IsDevice(location.id))
        return CUDA_ERROR_INVALID_VALUE;
      return gpusim::AddMemoryNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                   location.id, nodeParams->alloc.bytesize, &nodeParams->alloc.dptr,
                                   phGraphNode);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return gpusim::AddMemoryNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEM_FREE, 0, 0,
                                   &nodeParams->free.dptr, phGraphNode);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return gpusim::AddNode(hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY, gpusim::Work{},
                             nullptr, phGraphNode);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return gpusim::AddChildNode(hGraph, dependencies, numDependencies, nodeParams->graph.graph,
                                  nodeParams->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
                                  phGraphNode);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

DRIVER_API(cuDeviceGraphMemTrim, (CUdevice device), (device)) {
  if (!gpusim::IsDevice(device)) return CUDA_ERROR_INVALID_DEVICE;
  gpusim::TrimGraphMemory(device);
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void* value),
           (device, attr, value)) {
  if (!gpusim::IsDevice(device) || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return gpusim::GraphMemoryAttribute(device, attr, static_cast<uint64_t*>(value));
}

DRIVER_API(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void* value),
           (device, attr, value)) {
  if (!gpusim::IsDevice(device) || value == nullptr || *static_cast<uint64_t*>(value) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return gpusim::ResetGraphMemoryAttribute(device, attr);
}
