// Converts the runtime's addresses, places and array descriptions to the driver's.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace gpusim::cudart {

inline CUdeviceptr Device(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

inline CUmemLocation Location(const cudaMemLocation& location) {
  CUmemLocation result{};
  result.type = static_cast<CUmemLocationType>(location.type);
  result.id = location.id;
  return result;
}

inline CUarray_format FormatOf(const cudaChannelFormatDesc& desc) {
  switch (desc.f) {
    case cudaChannelFormatKindSigned:
      return desc.x == 8    ? CU_AD_FORMAT_SIGNED_INT8
             : desc.x == 16 ? CU_AD_FORMAT_SIGNED_INT16
                            : CU_AD_FORMAT_SIGNED_INT32;
    case cudaChannelFormatKindFloat:
      return desc.x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
    default:
      return desc.x == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
             : desc.x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                            : CU_AD_FORMAT_UNSIGNED_INT32;
  }
}

inline CUDA_ARRAY3D_DESCRIPTOR DescriptorOf(const cudaChannelFormatDesc& desc, cudaExtent extent,
                                            unsigned flags) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = extent.width;
  descriptor.Height = extent.height;
  descriptor.Depth = extent.depth;
  descriptor.Format = FormatOf(desc);
  descriptor.NumChannels =
      static_cast<unsigned>((desc.x != 0) + (desc.y != 0) + (desc.z != 0) + (desc.w != 0));
  descriptor.Flags = flags;
  return descriptor;
}

}  // namespace gpusim::cudart
