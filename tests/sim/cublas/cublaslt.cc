// libcublasLt.so.13 of the simulated node: descriptions of a product, one algorithm, and the product itself.
#include <cublasLt.h>

#include <cstring>

#include "tests/sim/cublas/matmul.h"

namespace {

using gpusim::cublas::Product;

struct Layout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int32_t batch = 1;
};

struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
};

template <typename Value>
cublasStatus_t Read(Value* value, const void* buffer, size_t size) {
  if (buffer == nullptr || size != sizeof *value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, buffer, size);
  return CUBLAS_STATUS_SUCCESS;
}

const Layout& Behind(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const Layout*>(layout); }

}  // namespace

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t) {
  *matLayout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  delete reinterpret_cast<Layout*>(matLayout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, const void* buf,
                                                size_t sizeInBytes) {
  if (attr != CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return CUBLAS_STATUS_SUCCESS;  // strides and orders
  return Read(&reinterpret_cast<Layout*>(matLayout)->batch, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType_t) {
  *matmulDesc = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{computeType});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  delete reinterpret_cast<Description*>(matmulDesc);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void* buf,
                                              size_t sizeInBytes) {
  auto* description = reinterpret_cast<Description*>(matmulDesc);
  if (attr == CUBLASLT_MATMUL_DESC_TRANSA) return Read(&description->transpose_a, buf, sizeInBytes);
  if (attr == CUBLASLT_MATMUL_DESC_TRANSB) return Read(&description->transpose_b, buf, sizeInBytes);
  return CUBLAS_STATUS_SUCCESS;  // epilogues and scales are part of the same kernel
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* pref) {
  *pref = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref) {
  delete pref;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t,
                                              int requestedAlgoCount,
                                              cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                              int* returnAlgoCount) {
  if (requestedAlgoCount < 1) return CUBLAS_STATUS_INVALID_VALUE;
  heuristicResultsArray[0] = {};
  heuristicResultsArray[0].state = CUBLAS_STATUS_SUCCESS;
  *returnAlgoCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t computeDesc, const void*, const void*,
                              cublasLtMatrixLayout_t Adesc, const void*, cublasLtMatrixLayout_t, const void*,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  const auto& description = *reinterpret_cast<const Description*>(computeDesc);
  const Layout& a = Behind(Adesc);
  const Layout& d = Behind(Ddesc);
  Product product;
  product.transpose_a = description.transpose_a != CUBLAS_OP_N;
  product.transpose_b = description.transpose_b != CUBLAS_OP_N;
  product.m = d.rows;
  product.n = d.columns;
  product.k = product.transpose_a ? a.rows : a.columns;
  product.batch = static_cast<uint64_t>(d.batch);
  product.type = a.type;
  product.tensor_cores = description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  return gpusim::cublas::Launch(product, stream) == 0 ? CUBLAS_STATUS_SUCCESS
                                                      : CUBLAS_STATUS_EXECUTION_FAILED;
}
