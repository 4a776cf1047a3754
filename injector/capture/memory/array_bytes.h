// Computes the size of a CUDA array's elements from its descriptor: the bytes requested, without the driver's
// padding.
//
// Pure arithmetic on cuda.h's descriptors. Any thread, no allocation; a format that this version does not
// know counts as one byte per channel.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

uint64_t ArrayBytes(const CUDA_ARRAY_DESCRIPTOR& descriptor) noexcept;
// With all its mipmap levels, when `levels` is more than one.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) noexcept;

}  // namespace gpuprobe::injector
