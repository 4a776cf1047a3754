// Memory of other processes and of other APIs; pools by their place.
#include "tests/sim/cudart/api.h"
#include "tests/sim/cudart/descriptors.h"

using gpusim::cudart::FromDriver;
using gpusim::cudart::Location;
using gpusim::cudart::Ready;

namespace {

CUdeviceptr* Address(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

CUexternalMemory Memory(cudaExternalMemory_t memory) { return reinterpret_cast<CUexternalMemory>(memory); }

}  // namespace

RUNTIME_API(cudaIpcGetMemHandle, 4010, (cudaIpcMemHandle_t * handle, void* devPtr), (handle, devPtr)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuIpcGetMemHandle(reinterpret_cast<CUipcMemHandle*>(handle), reinterpret_cast<CUdeviceptr>(devPtr)));
}

RUNTIME_API(cudaIpcOpenMemHandle, 4010, (void** devPtr, cudaIpcMemHandle_t handle, unsigned int flags),
            (devPtr, handle, flags)) {
  GPUSIM_RETURN_IF(Ready());
  static_assert(sizeof(CUipcMemHandle) == sizeof handle);
  return FromDriver(
      cuIpcOpenMemHandle(Address(devPtr), *reinterpret_cast<const CUipcMemHandle*>(&handle), flags));
}

RUNTIME_API(cudaIpcCloseMemHandle, 4010, (void* devPtr), (devPtr)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuIpcCloseMemHandle(reinterpret_cast<CUdeviceptr>(devPtr)));
}

RUNTIME_API(cudaImportExternalMemory, 10000,
            (cudaExternalMemory_t * extMem_out, const struct cudaExternalMemoryHandleDesc* memHandleDesc),
            (extMem_out, memHandleDesc)) {
  if (memHandleDesc == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description{};
  description.type = static_cast<CUexternalMemoryHandleType>(memHandleDesc->type);
  description.handle.fd = memHandleDesc->handle.fd;
  description.size = memHandleDesc->size;
  description.flags = memHandleDesc->flags;
  return FromDriver(cuImportExternalMemory(reinterpret_cast<CUexternalMemory*>(extMem_out), &description));
}

RUNTIME_API(cudaExternalMemoryGetMappedBuffer, 10000,
            (void** devPtr, cudaExternalMemory_t extMem,
             const struct cudaExternalMemoryBufferDesc* bufferDesc),
            (devPtr, extMem, bufferDesc)) {
  if (bufferDesc == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC description{};
  description.offset = bufferDesc->offset;
  description.size = bufferDesc->size;
  description.flags = bufferDesc->flags;
  return FromDriver(cuExternalMemoryGetMappedBuffer(Address(devPtr), Memory(extMem), &description));
}

RUNTIME_API(cudaExternalMemoryGetMappedMipmappedArray, 10000,
            (cudaMipmappedArray_t * mipmap, cudaExternalMemory_t extMem,
             const struct cudaExternalMemoryMipmappedArrayDesc* mipmapDesc),
            (mipmap, extMem, mipmapDesc)) {
  if (mipmapDesc == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC description{};
  description.offset = mipmapDesc->offset;
  description.arrayDesc =
      gpusim::cudart::DescriptorOf(mipmapDesc->formatDesc, mipmapDesc->extent, mipmapDesc->flags);
  description.numLevels = mipmapDesc->numLevels;
  return FromDriver(cuExternalMemoryGetMappedMipmappedArray(reinterpret_cast<CUmipmappedArray*>(mipmap),
                                                            Memory(extMem), &description));
}

RUNTIME_API(cudaDestroyExternalMemory, 10000, (cudaExternalMemory_t extMem), (extMem)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuDestroyExternalMemory(Memory(extMem)));
}

RUNTIME_API(cudaMemPoolExportToShareableHandle, 11020,
            (void* shareableHandle, cudaMemPool_t memPool, enum cudaMemAllocationHandleType handleType,
             unsigned int flags),
            (shareableHandle, memPool, handleType, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolExportToShareableHandle(
      shareableHandle, memPool, static_cast<CUmemAllocationHandleType>(handleType), flags));
}

RUNTIME_API(cudaMemPoolImportFromShareableHandle, 11020,
            (cudaMemPool_t * memPool, void* shareableHandle, enum cudaMemAllocationHandleType handleType,
             unsigned int flags),
            (memPool, shareableHandle, handleType, flags)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolImportFromShareableHandle(
      memPool, shareableHandle, static_cast<CUmemAllocationHandleType>(handleType), flags));
}

static_assert(sizeof(CUmemPoolPtrExportData) == sizeof(cudaMemPoolPtrExportData));
RUNTIME_API(cudaMemPoolExportPointer, 11020, (struct cudaMemPoolPtrExportData * exportData, void* ptr),
            (exportData, ptr)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemPoolExportPointer(reinterpret_cast<CUmemPoolPtrExportData*>(exportData),
                                           reinterpret_cast<CUdeviceptr>(ptr)));
}

RUNTIME_API(cudaMemPoolImportPointer, 11020,
            (void** ptr, cudaMemPool_t memPool, struct cudaMemPoolPtrExportData* exportData),
            (ptr, memPool, exportData)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuMemPoolImportPointer(Address(ptr), memPool, reinterpret_cast<CUmemPoolPtrExportData*>(exportData)));
}

RUNTIME_API(cudaMemGetDefaultMemPool, 13000,
            (cudaMemPool_t * memPool, struct cudaMemLocation* location, enum cudaMemAllocationType type),
            (memPool, location, type)) {
  if (location == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUmemLocation place = Location(*location);
  return FromDriver(cuMemGetDefaultMemPool(memPool, &place, static_cast<CUmemAllocationType>(type)));
}

RUNTIME_API(cudaMemGetMemPool, 13000,
            (cudaMemPool_t * memPool, struct cudaMemLocation* location, enum cudaMemAllocationType type),
            (memPool, location, type)) {
  if (location == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUmemLocation place = Location(*location);
  return FromDriver(cuMemGetMemPool(memPool, &place, static_cast<CUmemAllocationType>(type)));
}

RUNTIME_API(cudaMemSetMemPool, 13000,
            (struct cudaMemLocation * location, enum cudaMemAllocationType type, cudaMemPool_t memPool),
            (location, type, memPool)) {
  if (location == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(Ready());
  CUmemLocation place = Location(*location);
  return FromDriver(cuMemSetMemPool(&place, static_cast<CUmemAllocationType>(type), memPool));
}
