// What a cuBLAS handle keeps. Its use from several threads at once is the caller's error, as with the real
// one.
#pragma once

#include <cublas_v2.h>

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};
