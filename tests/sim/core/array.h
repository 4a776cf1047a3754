// Arrays: device memory with a shape and an element format. Linear inside; nothing here samples them.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "tests/sim/core/copy.h"

struct CUarray_st {
  uint64_t address = 0;  // 0: a sparse one, which has no memory
  size_t pitch = 0;      // bytes of a row
  size_t rows = 1;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
};

struct CUmipmappedArray_st {
  uint64_t address = 0;   // 0: a sparse one, which has no memory
  bool imported = false;  // from another API
};

namespace gpusim {

inline bool IsSparse(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  return (shape.Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
}
size_t BytesOfElement(CUarray_format format, unsigned channels);
// Bytes of all levels; 0: not a valid mipmapped array.
size_t BytesOfMipmaps(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);

// The box that a CUDA_MEMCPY3D describes.
CUresult ShapeOfCopy3D(const CUDA_MEMCPY3D& copy, CopyShape* shape);

}  // namespace gpusim
