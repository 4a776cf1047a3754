// libcublas.so.13 of the simulated node: handles and the products that PyTorch asks for.
#include <cublas_v2.h>

#include "tests/sim/cublas/matmul.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

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

template <typename Member>
cublasStatus_t Set(cublasHandle_t handle, Member cublasContext::*member, Member value) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->*member = value;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Member>
cublasStatus_t Get(cublasHandle_t handle, Member cublasContext::*member, Member* value) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *value = handle->*member;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return Set(handle, &cublasContext::stream, stream);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return Set(handle, &cublasContext::math, mode);
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return Get(handle, &cublasContext::math, mode);
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return Set(handle, &cublasContext::pointers, mode);
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return Get(handle, &cublasContext::pointers, mode);
}

// The workspace is the caller's memory; the kernels here need none.
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void*, size_t) {
  return handle != nullptr ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                              int m, int n, int k, const float*, const float*, int, const float*, int,
                              const float*, float*, int) {
  return Multiply(handle, transa, transb, m, n, k, 1, CUDA_R_32F);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                              int m, int n, int k, const double*, const double*, int, const double*, int,
                              const double*, double*, int) {
  return Multiply(handle, transa, transb, m, n, k, 1, CUDA_R_64F);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k, const float*,
                                         const float*, int, long long int, const float*, int, long long int,
                                         const float*, float*, int, long long int, int batchCount) {
  return Multiply(handle, transa, transb, m, n, k, batchCount, CUDA_R_32F);
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
