// The only kernel of random_collectives.cc, in a file of its own because nvcc compiles it.
#pragma once

#include <cuda_runtime_api.h>

namespace random_collectives {

void LaunchKernel(int blocks, char* values, cudaStream_t stream);

}  // namespace random_collectives
