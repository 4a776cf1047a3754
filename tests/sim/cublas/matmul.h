// The products that cuBLAS and cuBLASLt are asked for, and the kernels that stand for them.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstdint>

namespace gpusim::cublas {

// Of two matrices, or of `batch` pairs of them.
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

// Of a matrix, stored as `rows` x `columns`, and a vector.
struct VectorProduct {
  bool transpose = false;
  uint64_t rows = 0;
  uint64_t columns = 0;
  cudaDataType type = CUDA_R_32F;
};

// Each launches one kernel, whose name tells type, transposition and, for matrices, tile; a CUresult. A
// product without elements launches nothing. At least kShortestNs.
// - Matrices: 2mnk operations (four times as many for complex numbers) at the type's rate.
// - A matrix and a vector, two vectors: the time to read them.
int Launch(const Product& product, cudaStream_t stream);
int LaunchGemv(const VectorProduct& product, cudaStream_t stream);
int LaunchDot(uint64_t elements, cudaDataType type, cudaStream_t stream);

constexpr uint64_t kShortestNs = 2'000;
constexpr double kReadBytesPerS = 3000e9;  // as the node's fills write

}  // namespace gpusim::cublas
