// Allocation: device, pinned, managed, pools, and what an address is.
#include "tests/sim/core/memory.h"

#include "tests/sim/cuda/api.h"

using gpusim::MemoryClass;
using gpusim::Range;

namespace {

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

CUresult AllocateHost(size_t bytes, unsigned flags, void** pointer) {
  if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  GPUSIM_CHECK(gpusim::Allocate(MemoryClass::kPinned, bytes, flags, &address));
  *pointer = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  return CUDA_SUCCESS;
}

}  // namespace

DRIVER_API(cuMemAlloc_v2, (CUdeviceptr * dptr, size_t bytesize), (dptr, bytesize)) {
  uint64_t address = 0;
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GPUSIM_CHECK(gpusim::Allocate(MemoryClass::kDevice, bytesize, 0, &address));
  *dptr = address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAllocPitch_v2,
           (CUdeviceptr * dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
            unsigned int ElementSizeBytes),
           (dptr, pPitch, WidthInBytes, Height, ElementSizeBytes)) {
  if (dptr == nullptr || pPitch == nullptr || WidthInBytes == 0 || Height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  constexpr size_t kPitch = 512;
  *pPitch = (WidthInBytes + kPitch - 1) / kPitch * kPitch;
  uint64_t address = 0;
  GPUSIM_CHECK(gpusim::Allocate(MemoryClass::kDevice, *pPitch * Height, 0, &address, WidthInBytes * Height));
  *dptr = address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemFree_v2, (CUdeviceptr dptr), (dptr)) { return gpusim::Free(MemoryClass::kDevice, dptr); }

DRIVER_API(cuMemAllocManaged, (CUdeviceptr * dptr, size_t bytesize, unsigned int flags),
           (dptr, bytesize, flags)) {
  if (dptr == nullptr || flags == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  GPUSIM_CHECK(gpusim::Allocate(MemoryClass::kManaged, bytesize, 0, &address));
  *dptr = address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAllocHost_v2, (void** pp, size_t bytesize), (pp, bytesize)) {
  return AllocateHost(bytesize, 0, pp);
}

DRIVER_API(cuMemHostAlloc, (void** pp, size_t bytesize, unsigned int Flags), (pp, bytesize, Flags)) {
  return AllocateHost(bytesize, Flags, pp);
}

DRIVER_API(cuMemFreeHost, (void* p), (p)) { return gpusim::Free(MemoryClass::kPinned, AddressOf(p)); }

DRIVER_API(cuMemHostRegister_v2, (void* p, size_t bytesize, unsigned int Flags), (p, bytesize, Flags)) {
  return gpusim::RegisterHost(p, bytesize, Flags);
}

DRIVER_API(cuMemHostUnregister, (void* p), (p)) { return gpusim::UnregisterHost(p); }

DRIVER_API(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void* p, unsigned int Flags),
           (pdptr, p, Flags)) {
  Range range;
  if (pdptr == nullptr || !gpusim::FindRange(AddressOf(p), &range)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = AddressOf(p);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemHostGetFlags, (unsigned int* pFlags, void* p), (pFlags, p)) {
  Range range;
  if (pFlags == nullptr || !gpusim::FindRange(AddressOf(p), &range)) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = range.host_flags;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetInfo_v2, (size_t * free, size_t* total), (free, total)) {
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  gpusim::MemoryInfo(context->device, &free_bytes, &total_bytes);
  if (free != nullptr) *free = free_bytes;
  if (total != nullptr) *total = total_bytes;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetAddressRange_v2, (CUdeviceptr * pbase, size_t* psize, CUdeviceptr dptr),
           (pbase, psize, dptr)) {
  Range range;
  if (!gpusim::FindRange(dptr, &range)) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range.base;
  if (psize != nullptr) *psize = range.bytes;
  return CUDA_SUCCESS;
}

namespace {

bool IsHostMemory(const Range& range) {
  return range.memory == MemoryClass::kPinned || range.memory == MemoryClass::kRegistered;
}

CUresult PointerAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  Range range;
  const bool known = gpusim::FindRange(pointer, &range);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<unsigned*>(data) = IsHostMemory(range) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUcontext*>(data) = range.context;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
      const bool host = attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
      if (!known || (host && !IsHostMemory(range) && range.memory != MemoryClass::kManaged))
        return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = pointer;
      return CUDA_SUCCESS;
    }
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = known && range.memory == MemoryClass::kManaged ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<int*>(data) = range.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<CUdeviceptr*>(data) = range.base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<size_t*>(data) = range.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(data) = known ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (!known) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<unsigned long long*>(data) = range.base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<int*>(data) = known && range.memory == MemoryClass::kDevice ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(data) = range.pool;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

DRIVER_API(cuPointerGetAttribute, (void* data, CUpointer_attribute attribute, CUdeviceptr ptr),
           (data, attribute, ptr)) {
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return PointerAttribute(data, attribute, ptr);
}

DRIVER_API(cuPointerGetAttributes,
           (unsigned int numAttributes, CUpointer_attribute* attributes, void** data, CUdeviceptr ptr),
           (numAttributes, attributes, data, ptr)) {
  for (unsigned i = 0; i < numAttributes; ++i) {
    // What an unknown address has no answer for reads as zero, as documented.
    if (PointerAttribute(data[i], attributes[i], ptr) != CUDA_SUCCESS) *static_cast<int*>(data[i]) = 0;
  }
  return CUDA_SUCCESS;
}

DRIVER_API(cuPointerSetAttribute, (const void* value, CUpointer_attribute attribute, CUdeviceptr ptr),
           (value, attribute, ptr)) {
  Range range;
  if (value == nullptr || !gpusim::FindRange(ptr, &range)) return CUDA_ERROR_INVALID_VALUE;
  // Copies of this node never overtake a synchronous call's return, so synchronous memory operations hold
  // already.
  return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

DRIVER_API(cuMemAdvise_v2, (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location),
           (devPtr, count, advice, location)) {
  Range range;
  return gpusim::FindRange(devPtr, &range) && count != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DRIVER_STREAM_API(cuMemPrefetchAsync_v2, _ptsz,
                  (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                   CUstream hStream),
                  (devPtr, count, location, flags, hStream)) {
  Range range;
  if (!gpusim::FindRange(devPtr, &range) || range.memory != MemoryClass::kManaged || count == 0)
    return CUDA_ERROR_INVALID_VALUE;
  return gpusim::Issue(hStream, gpusim::Work{}, CU_GRAPH_NODE_TYPE_EMPTY, nullptr);  // all memory is near
}
