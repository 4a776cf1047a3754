// Allocation, attributes of addresses, variables.
#include "tests/sim/core/memory.h"

#include "tests/sim/core/array.h"
#include "tests/sim/cudart/api.h"
#include "tests/sim/cudart/descriptors.h"

using gpusim::cudart::DescriptorOf;
using gpusim::cudart::Device;
using gpusim::cudart::FromDriver;
using gpusim::cudart::Location;
using gpusim::cudart::Ready;

namespace {

cudaError_t MakeArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent,
                      unsigned flags) {
  if (array == nullptr || desc == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = DescriptorOf(*desc, extent, flags);
  return FromDriver(cuArray3DCreate_v2(reinterpret_cast<CUarray*>(array), &descriptor));
}

}  // namespace

RUNTIME_API(cudaMalloc, 3020, (void** devPtr, size_t size), (devPtr, size)) {
  if (devPtr == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  *devPtr = nullptr;
  if (size == 0) return cudaSuccess;
  return FromDriver(cuMemAlloc_v2(reinterpret_cast<CUdeviceptr*>(devPtr), size));
}

RUNTIME_API(cudaFree, 3020, (void* devPtr), (devPtr)) {
  GPUSIM_RETURN_IF(Ready());
  return devPtr == nullptr ? cudaSuccess : FromDriver(cuMemFree_v2(Device(devPtr)));
}

RUNTIME_API(cudaMallocPitch, 3020, (void** devPtr, size_t* pitch, size_t width, size_t height),
            (devPtr, pitch, width, height)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemAllocPitch_v2(reinterpret_cast<CUdeviceptr*>(devPtr), pitch, width, height, 4));
}

RUNTIME_API(cudaMalloc3D, 3020, (struct cudaPitchedPtr * pitchedDevPtr, struct cudaExtent extent),
            (pitchedDevPtr, extent)) {
  GPUSIM_RETURN_IF(Ready());
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  GPUSIM_RETURN_IF(cuMemAllocPitch_v2(&pointer, &pitch, extent.width, extent.height * extent.depth, 4));
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  *pitchedDevPtr = {reinterpret_cast<void*>(pointer), pitch, extent.width, extent.height};
  return cudaSuccess;
}

RUNTIME_API(cudaMallocManaged, 6000, (void** devPtr, size_t size, unsigned int flags),
            (devPtr, size, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemAllocManaged(reinterpret_cast<CUdeviceptr*>(devPtr), size, flags));
}

RUNTIME_API(cudaMallocHost, 3020, (void** ptr, size_t size), (ptr, size)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostAlloc(ptr, size, 0));
}

RUNTIME_API(cudaHostAlloc, 3020, (void** pHost, size_t size, unsigned int flags), (pHost, size, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostAlloc(pHost, size, flags));
}

RUNTIME_API(cudaFreeHost, 3020, (void* ptr), (ptr)) {
  GPUSIM_RETURN_IF(Ready());
  return ptr == nullptr ? cudaSuccess : FromDriver(cuMemFreeHost(ptr));
}

RUNTIME_API(cudaHostRegister, 4000, (void* ptr, size_t size, unsigned int flags), (ptr, size, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostRegister_v2(ptr, size, flags));
}

RUNTIME_API(cudaHostUnregister, 4000, (void* ptr), (ptr)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostUnregister(ptr));
}

RUNTIME_API(cudaHostGetDevicePointer, 3020, (void** pDevice, void* pHost, unsigned int flags),
            (pDevice, pHost, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostGetDevicePointer_v2(reinterpret_cast<CUdeviceptr*>(pDevice), pHost, flags));
}

RUNTIME_API(cudaHostGetFlags, 3020, (unsigned int* pFlags, void* pHost), (pFlags, pHost)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemHostGetFlags(pFlags, pHost));
}

RUNTIME_API(cudaMemGetInfo, 3020, (size_t * free, size_t* total), (free, total)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemGetInfo_v2(free, total));
}

RUNTIME_STREAM_API(cudaMallocAsync, 11020, _ptsz, 11020, (void** devPtr, size_t size, cudaStream_t hStream),
                   (devPtr, size, hStream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(devPtr), size, hStream));
}

RUNTIME_STREAM_API(cudaMallocFromPoolAsync, 11020, _ptsz, 11020,
                   (void** ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
                   (ptr, size, memPool, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(ptr), size, memPool, stream));
}

RUNTIME_STREAM_API(cudaFreeAsync, 11020, _ptsz, 11020, (void* devPtr, cudaStream_t hStream),
                   (devPtr, hStream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemFreeAsync(Device(devPtr), hStream));
}

RUNTIME_API(cudaMemPoolCreate, 11020, (cudaMemPool_t * memPool, const struct cudaMemPoolProps* poolProps),
            (memPool, poolProps)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolCreate(memPool, reinterpret_cast<const CUmemPoolProps*>(poolProps)));
}

RUNTIME_API(cudaMemPoolDestroy, 11020, (cudaMemPool_t memPool), (memPool)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolDestroy(memPool));
}

RUNTIME_API(cudaMemPoolTrimTo, 11020, (cudaMemPool_t memPool, size_t minBytesToKeep),
            (memPool, minBytesToKeep)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolTrimTo(memPool, minBytesToKeep));
}

RUNTIME_API(cudaMemPoolSetAttribute, 11020, (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void* value),
            (memPool, attr, value)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolSetAttribute(memPool, static_cast<CUmemPool_attribute>(attr), value));
}

RUNTIME_API(cudaMemPoolGetAttribute, 11020, (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void* value),
            (memPool, attr, value)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolGetAttribute(memPool, static_cast<CUmemPool_attribute>(attr), value));
}

RUNTIME_API(cudaMemPoolSetAccess, 11020,
            (cudaMemPool_t memPool, const struct cudaMemAccessDesc* descList, size_t count),
            (memPool, descList, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolSetAccess(memPool, reinterpret_cast<const CUmemAccessDesc*>(descList), count));
}

RUNTIME_API(cudaPointerGetAttributes, 4000, (struct cudaPointerAttributes * attributes, const void* ptr),
            (attributes, ptr)) {
  if (attributes == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  *attributes = cudaPointerAttributes{};
  attributes->hostPointer = const_cast<void*>(ptr);
  attributes->device = cudaInvalidDeviceId;
  gpusim::Range range;
  if (!gpusim::FindRange(Device(ptr), &range)) return cudaSuccess;  // cudaMemoryTypeUnregistered
  attributes->device = range.device;
  attributes->devicePointer = const_cast<void*>(ptr);
  switch (range.memory) {
    case gpusim::MemoryClass::kPinned:
    case gpusim::MemoryClass::kRegistered:
      attributes->type = cudaMemoryTypeHost;
      break;
    case gpusim::MemoryClass::kManaged:
      attributes->type = cudaMemoryTypeManaged;
      break;
    default:
      attributes->type = cudaMemoryTypeDevice;
      attributes->hostPointer = nullptr;
  }
  return cudaSuccess;
}

RUNTIME_STREAM_API(cudaMemPrefetchAsync, 12020, _ptsz, 12020,
                   (const void* devPtr, size_t count, struct cudaMemLocation location, unsigned int flags,
                    cudaStream_t stream),
                   (devPtr, count, location, flags, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPrefetchAsync_v2(Device(devPtr), count, Location(location), flags, stream));
}

RUNTIME_API(cudaMemAdvise, 12020,
            (const void* devPtr, size_t count, enum cudaMemoryAdvise advice, struct cudaMemLocation location),
            (devPtr, count, advice, location)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuMemAdvise_v2(Device(devPtr), count, static_cast<CUmem_advise>(advice), Location(location)));
}

RUNTIME_API(cudaMallocArray, 3020,
            (cudaArray_t * array, const struct cudaChannelFormatDesc* desc, size_t width, size_t height,
             unsigned int flags),
            (array, desc, width, height, flags)) {
  return MakeArray(array, desc, cudaExtent{width, height, 0}, flags);
}

RUNTIME_API(cudaMalloc3DArray, 3020,
            (cudaArray_t * array, const struct cudaChannelFormatDesc* desc, struct cudaExtent extent,
             unsigned int flags),
            (array, desc, extent, flags)) {
  return MakeArray(array, desc, extent, flags);
}

RUNTIME_API(cudaFreeArray, 3020, (cudaArray_t array), (array)) {
  GPUSIM_RETURN_IF(Ready());
  return array == nullptr ? cudaSuccess : FromDriver(cuArrayDestroy(reinterpret_cast<CUarray>(array)));
}

RUNTIME_API(cudaMallocMipmappedArray, 5000,
            (cudaMipmappedArray_t * mipmappedArray, const struct cudaChannelFormatDesc* desc,
             struct cudaExtent extent, unsigned int numLevels, unsigned int flags),
            (mipmappedArray, desc, extent, numLevels, flags)) {
  if (mipmappedArray == nullptr || desc == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = DescriptorOf(*desc, extent, flags);
  return FromDriver(
      cuMipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(mipmappedArray), &descriptor, numLevels));
}

RUNTIME_API(cudaFreeMipmappedArray, 5000, (cudaMipmappedArray_t mipmappedArray), (mipmappedArray)) {
  GPUSIM_RETURN_IF(Ready());
  if (mipmappedArray == nullptr) return cudaSuccess;
  return FromDriver(cuMipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(mipmappedArray)));
}

RUNTIME_API(cudaGetSymbolAddress, 3020, (void** devPtr, const void* symbol), (devPtr, symbol)) {
  GPUSIM_RETURN_IF(Ready());
  size_t bytes = 0;
  return gpusim::cudart::VariableAddress(symbol, devPtr, &bytes) ? cudaSuccess : cudaErrorInvalidSymbol;
}

RUNTIME_API(cudaGetSymbolSize, 3020, (size_t * size, const void* symbol), (size, symbol)) {
  GPUSIM_RETURN_IF(Ready());
  void* address = nullptr;
  return gpusim::cudart::VariableAddress(symbol, &address, size) ? cudaSuccess : cudaErrorInvalidSymbol;
}

extern "C" cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                                       enum cudaChannelFormatKind f) {
  return cudaChannelFormatDesc{x, y, z, w, f};
}
