// How many bytes a CUDA array's elements take, from its descriptor: what was asked for, without the driver's
// padding.
//
// Separate because it is pure arithmetic on cuda.h's descriptors. Any thread, no allocation; a format that
// this version does not know counts as one byte a channel.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

uint64_t ArrayBytes(const CUDA_ARRAY_DESCRIPTOR& descriptor) noexcept;
// With all its mipmap levels, when `levels` is more than one.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels) noexcept;

}  // namespace gpuprobe::injector
