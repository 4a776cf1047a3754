// Arrays: creation, description, destruction.
#include "tests/sim/core/array.h"

#include <algorithm>

#include "tests/sim/core/memory.h"
#include "tests/sim/core/shared_memory.h"
#include "tests/sim/cuda/api.h"
#include "tests/sim/cuda/vmm.h"

namespace gpusim {

size_t BytesOfElement(CUarray_format format, unsigned channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return size_t{2} * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return size_t{4} * channels;
    default:
      return 0;
  }
}

// Every level has half the sides of the one before, and as many layers.
size_t BytesOfMipmaps(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  const size_t element = BytesOfElement(shape.Format, shape.NumChannels);
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  size_t bytes = 0;
  for (unsigned level = 0; shape.Width != 0 && level < levels; ++level) {
    const size_t width = std::max<size_t>(1, shape.Width >> level);
    const size_t height = std::max<size_t>(1, shape.Height >> level);
    const size_t depth = std::max<size_t>(1, layered ? shape.Depth : shape.Depth >> level);
    bytes += width * height * depth * element;
  }
  return bytes;
}

}  // namespace gpusim

DRIVER_API(cuArray3DCreate_v2, (CUarray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray),
           (pHandle, pAllocateArray)) {
  if (pHandle == nullptr || pAllocateArray == nullptr || pAllocateArray->Width == 0)
    return CUDA_ERROR_INVALID_VALUE;
  const size_t element = gpusim::BytesOfElement(pAllocateArray->Format, pAllocateArray->NumChannels);
  if (element == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* array = new CUarray_st;
  array->descriptor = *pAllocateArray;
  array->pitch = pAllocateArray->Width * element;
  array->rows = std::max<size_t>(1, pAllocateArray->Height);
  const size_t bytes = array->pitch * array->rows * std::max<size_t>(1, pAllocateArray->Depth);
  const CUresult result = gpusim::IsSparse(*pAllocateArray)
                              ? CUDA_SUCCESS
                              : gpusim::Allocate(gpusim::MemoryClass::kArray, bytes, 0, &array->address);
  if (result != CUDA_SUCCESS) {
    delete array;
    return result;
  }
  *pHandle = array;
  return CUDA_SUCCESS;
}

DRIVER_API(cuArrayCreate_v2, (CUarray * pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray),
           (pHandle, pAllocateArray)) {
  if (pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = pAllocateArray->Width;
  descriptor.Height = pAllocateArray->Height;
  descriptor.Format = pAllocateArray->Format;
  descriptor.NumChannels = pAllocateArray->NumChannels;
  return cuArray3DCreate_v2_body(pHandle, &descriptor);
}

DRIVER_API(cuArrayDestroy, (CUarray hArray), (hArray)) {
  if (hArray == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  gpusim::DropTiles(hArray);
  GPUSIM_CHECK(gpusim::Free(gpusim::MemoryClass::kArray, hArray->address));
  delete hArray;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMipmappedArrayCreate,
           (CUmipmappedArray * pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
            unsigned int numMipmapLevels),
           (pHandle, pMipmappedArrayDesc, numMipmapLevels)) {
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const size_t bytes = gpusim::BytesOfMipmaps(*pMipmappedArrayDesc, numMipmapLevels);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  auto* array = new CUmipmappedArray_st;
  const CUresult result = gpusim::IsSparse(*pMipmappedArrayDesc)
                              ? CUDA_SUCCESS
                              : gpusim::Allocate(gpusim::MemoryClass::kArray, bytes, 0, &array->address);
  if (result != CUDA_SUCCESS) {
    delete array;
    return result;
  }
  *pHandle = array;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMipmappedArrayDestroy, (CUmipmappedArray hMipmappedArray), (hMipmappedArray)) {
  if (hMipmappedArray == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  gpusim::DropTiles(hMipmappedArray);
  GPUSIM_CHECK(hMipmappedArray->imported
                   ? gpusim::Unmap(gpusim::MemoryClass::kImported, hMipmappedArray->address)
                   : gpusim::Free(gpusim::MemoryClass::kArray, hMipmappedArray->address));
  delete hMipmappedArray;
  return CUDA_SUCCESS;
}

DRIVER_API(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
           (pArrayDescriptor, hArray)) {
  if (hArray == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *pArrayDescriptor = hArray->descriptor;
  return CUDA_SUCCESS;
}

DRIVER_API(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * pArrayDescriptor, CUarray hArray),
           (pArrayDescriptor, hArray)) {
  if (hArray == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  pArrayDescriptor->Width = hArray->descriptor.Width;
  pArrayDescriptor->Height = hArray->descriptor.Height;
  pArrayDescriptor->Format = hArray->descriptor.Format;
  pArrayDescriptor->NumChannels = hArray->descriptor.NumChannels;
  return CUDA_SUCCESS;
}
