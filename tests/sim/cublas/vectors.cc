// The products with vectors that PyTorch asks cuBLAS for. Results are not computed.
#include <cuda.h>

#include "tests/sim/cublas/handle.h"
#include "tests/sim/cublas/matmul.h"

namespace {

cublasStatus_t MultiplyVector(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              cudaDataType type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (m < 0 || n < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const gpusim::cublas::VectorProduct product{.transpose = trans != CUBLAS_OP_N,
                                              .rows = static_cast<uint64_t>(m),
                                              .columns = static_cast<uint64_t>(n),
                                              .type = type};
  return gpusim::cublas::LaunchGemv(product, handle->stream) == 0 ? CUBLAS_STATUS_SUCCESS
                                                                  : CUBLAS_STATUS_EXECUTION_FAILED;
}

// A result in the host's memory is waited for.
cublasStatus_t Dot(cublasHandle_t handle, int n, cudaDataType type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool well =
      gpusim::cublas::LaunchDot(n > 0 ? static_cast<uint64_t>(n) : 0, type, handle->stream) == 0 &&
      (handle->pointers == CUBLAS_POINTER_MODE_DEVICE || cuStreamSynchronize(handle->stream) == CUDA_SUCCESS);
  return well ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses)
#define GEMV(letter, element, type)                                                                    \
  cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n, \
                                         const element*, const element*, int, const element*, int,     \
                                         const element*, element*, int) {                              \
    return MultiplyVector(handle, trans, m, n, type);                                                  \
  }
#define DOT(name, element, type)                                                                           \
  cublasStatus_t cublas##name##_v2(cublasHandle_t handle, int n, const element*, int, const element*, int, \
                                   element*) {                                                             \
    return Dot(handle, n, type);                                                                           \
  }
// NOLINTEND(bugprone-macro-parentheses)
GEMV(S, float, CUDA_R_32F)
GEMV(D, double, CUDA_R_64F)
GEMV(C, cuComplex, CUDA_C_32F)
GEMV(Z, cuDoubleComplex, CUDA_C_64F)
DOT(Sdot, float, CUDA_R_32F)
DOT(Ddot, double, CUDA_R_64F)
DOT(Cdotu, cuComplex, CUDA_C_32F)
DOT(Cdotc, cuComplex, CUDA_C_32F)
DOT(Zdotu, cuDoubleComplex, CUDA_C_64F)
DOT(Zdotc, cuDoubleComplex, CUDA_C_64F)
#undef GEMV
#undef DOT

cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void*, cudaDataType xType, int, const void*,
                           cudaDataType, int, void*, cudaDataType, cudaDataType) {
  return Dot(handle, n, xType);
}
