// The products of matrices that PyTorch asks cuBLAS for, alone and in batches.
#include "tests/sim/cublas/handle.h"
#include "tests/sim/cublas/matmul.h"

namespace {

using gpusim::cublas::Product;

cublasStatus_t Multiply(cublasHandle_t handle, cublasOperation_t a, cublasOperation_t b, int m, int n, int k,
                        int batch, cudaDataType type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0 || k < 0 || batch < 0) return CUBLAS_STATUS_INVALID_VALUE;
  Product product;
  product.transpose_a = a != CUBLAS_OP_N;
  product.transpose_b = b != CUBLAS_OP_N;
  product.m = static_cast<uint64_t>(m);
  product.n = static_cast<uint64_t>(n);
  product.k = static_cast<uint64_t>(k);
  product.batch = static_cast<uint64_t>(batch);
  product.type = type;
  product.tensor_cores = (static_cast<unsigned>(handle->math) & CUBLAS_TF32_TENSOR_OP_MATH) != 0;
  return gpusim::cublas::Launch(product, handle->stream) == 0 ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

// GEMM(letter, element, type): alone, with a stride between the matrices of a batch, and with an array of
// pointers to them.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define GEMM(letter, element, type)                                                                         \
  cublasStatus_t cublas##letter##gemm_v2(                                                                   \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,       \
      const element*, const element*, int, const element*, int, const element*, element*, int) {            \
    return Multiply(handle, transa, transb, m, n, k, 1, type);                                              \
  }                                                                                                         \
  cublasStatus_t cublas##letter##gemmStridedBatched(                                                        \
      cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,       \
      const element*, const element*, int, long long int, const element*, int, long long int,               \
      const element*, element*, int, long long int, int batchCount) {                                       \
    return Multiply(handle, transa, transb, m, n, k, batchCount, type);                                     \
  }                                                                                                         \
  cublasStatus_t cublas##letter##gemmBatched(cublasHandle_t handle, cublasOperation_t transa,               \
                                             cublasOperation_t transb, int m, int n, int k, const element*, \
                                             const element* const[], int, const element* const[], int,      \
                                             const element*, element* const[], int, int batchCount) {       \
    return Multiply(handle, transa, transb, m, n, k, batchCount, type);                                     \
  }
// NOLINTEND(bugprone-macro-parentheses)
GEMM(S, float, CUDA_R_32F)
GEMM(D, double, CUDA_R_64F)
GEMM(C, cuComplex, CUDA_C_32F)
GEMM(Z, cuDoubleComplex, CUDA_C_64F)
#undef GEMM

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                             int n, int k, const float*, const void*, cudaDataType Atype, int, const void*,
                             cudaDataType, int, const float*, void*, cudaDataType, int) {
  return Multiply(handle, transa, transb, m, n, k, 1, Atype);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                            int n, int k, const void*, const void*, cudaDataType Atype, int, const void*,
                            cudaDataType, int, const void*, void*, cudaDataType, int, cublasComputeType_t,
                            cublasGemmAlgo_t) {
  return Multiply(handle, transa, transb, m, n, k, 1, Atype);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k, const void*,
                                          const void*, cudaDataType Atype, int, long long int, const void*,
                                          cudaDataType, int, long long int, const void*, void*, cudaDataType,
                                          int, long long int, int batchCount, cublasComputeType_t,
                                          cublasGemmAlgo_t) {
  return Multiply(handle, transa, transb, m, n, k, batchCount, Atype);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                   int m, int n, int k, const void*, const void* const[], cudaDataType Atype,
                                   int, const void* const[], cudaDataType, int, const void*, void* const[],
                                   cudaDataType, int, int batchCount, cublasComputeType_t, cublasGemmAlgo_t) {
  return Multiply(handle, transa, transb, m, n, k, batchCount, Atype);
}
