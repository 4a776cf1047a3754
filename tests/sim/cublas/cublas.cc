// libcublas.so.13 of the simulated node: handles and their settings.
#include "tests/sim/cublas/handle.h"

namespace {

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
