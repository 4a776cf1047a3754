#include "injector/capture/memory/array_bytes.h"

#include <algorithm>

namespace gpuprobe::injector {

namespace {

uint64_t ChannelBytes(CUarray_format format) noexcept {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 1;
  }
}

}  // namespace

uint64_t ArrayBytes(const CUDA_ARRAY_DESCRIPTOR& descriptor) noexcept {
  return uint64_t{descriptor.Width} * std::max<uint64_t>(descriptor.Height, 1) * descriptor.NumChannels *
         ChannelBytes(descriptor.Format);
}

uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) noexcept {
  // The depth of a layered array is the number of its layers, which mipmapping does not halve.
  const bool layered = (descriptor.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  uint64_t width = descriptor.Width;
  uint64_t height = std::max<uint64_t>(descriptor.Height, 1);
  uint64_t depth = std::max<uint64_t>(descriptor.Depth, 1);
  uint64_t elements = 0;
  for (unsigned level = 0; level < std::clamp(levels, 1u, 32u); ++level) {
    elements += width * height * depth;
    width = std::max<uint64_t>(width / 2, 1);
    height = std::max<uint64_t>(height / 2, 1);
    if (!layered) depth = std::max<uint64_t>(depth / 2, 1);
  }
  return elements * descriptor.NumChannels * ChannelBytes(descriptor.Format);
}

}  // namespace gpuprobe::injector
