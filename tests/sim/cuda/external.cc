// Memory that another API made, imported by file descriptor: here any file will do.
#include <unistd.h>

#include <algorithm>

#include "tests/sim/core/array.h"
#include "tests/sim/core/shared_memory.h"
#include "tests/sim/cuda/api.h"

struct CUextMemory_st {
  int file = -1;
  uint64_t bytes = 0;
  int device = 0;
};

// The descriptor is ours from here on.
DRIVER_API(cuImportExternalMemory,
           (CUexternalMemory * extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc),
           (extMem_out, memHandleDesc)) {
  if (extMem_out == nullptr || memHandleDesc == nullptr || memHandleDesc->size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  if (lseek(memHandleDesc->handle.fd, 0, SEEK_END) < static_cast<off_t>(memHandleDesc->size))
    return CUDA_ERROR_INVALID_VALUE;
  *extMem_out = new CUextMemory_st{memHandleDesc->handle.fd, memHandleDesc->size, context->device};
  return CUDA_SUCCESS;
}

DRIVER_API(cuExternalMemoryGetMappedBuffer,
           (CUdeviceptr * devPtr, CUexternalMemory extMem,
            const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc),
           (devPtr, extMem, bufferDesc)) {
  if (devPtr == nullptr || extMem == nullptr || bufferDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (bufferDesc->flags != 0 || bufferDesc->size == 0 || bufferDesc->size > extMem->bytes ||
      bufferDesc->offset > extMem->bytes - bufferDesc->size)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t address = 0;
  GPUSIM_CHECK(gpusim::MapFile(extMem->file, bufferDesc->offset, bufferDesc->size, extMem->device,
                               gpusim::MemoryClass::kImported, &address));
  *devPtr = address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuExternalMemoryGetMappedMipmappedArray,
           (CUmipmappedArray * mipmap, CUexternalMemory extMem,
            const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* mipmapDesc),
           (mipmap, extMem, mipmapDesc)) {
  if (mipmap == nullptr || extMem == nullptr || mipmapDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t bytes = gpusim::BytesOfMipmaps(mipmapDesc->arrayDesc, mipmapDesc->numLevels);
  if (bytes == 0 || bytes > extMem->bytes || mipmapDesc->offset > extMem->bytes - bytes)
    return CUDA_ERROR_INVALID_VALUE;
  auto* array = new CUmipmappedArray_st;
  array->imported = true;
  const CUresult result = gpusim::MapFile(extMem->file, mipmapDesc->offset, bytes, extMem->device,
                                          gpusim::MemoryClass::kImported, &array->address);
  if (result != CUDA_SUCCESS) {
    delete array;
    return result;
  }
  *mipmap = array;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDestroyExternalMemory, (CUexternalMemory extMem), (extMem)) {
  if (extMem == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  close(extMem->file);
  delete extMem;
  return CUDA_SUCCESS;
}
