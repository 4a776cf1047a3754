// One matrix product as cuBLAS and cuBLASLt are asked for it, and the kernel that stands for it.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>

namespace gpusim::cublas {

struct Product {
  bool transpose_a = false;
  bool transpose_b = false;
  uint64_t m = 0;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t batch = 1;
  cudaDataType type = CUDA_R_32F;  // of A and B
  bool tensor_cores = false;       // of CUDA_R_32F: whether TF32 may be used
};

// Launches one kernel. Its name tells type, transposition and tile; it takes 2mnk operations at the type's
// rate, at least kShortestNs. A product without elements launches nothing. A CUresult.
int Launch(const Product& product, cudaStream_t stream);

constexpr uint64_t kShortestNs = 2'000;

}  // namespace gpusim::cublas
