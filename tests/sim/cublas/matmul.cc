#include "tests/sim/cublas/matmul.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/sim/core/cublas_seam.h"

namespace gpusim::cublas {
namespace {

// Operations per second are of an H100's order, about 70 % of its peak.
struct Type {
  cudaDataType type;
  bool tf32;
  const char* name;     // of a product of matrices
  const char* element;  // in the names of the other kernels
  uint32_t bytes;
  uint32_t operations;  // of a multiplication and an addition
  double operations_per_s;
};
constexpr Type kTypes[] = {
    {CUDA_R_16BF, false, "sm90_xmma_gemm_bf16bf16_bf16f32_f32", "__nv_bfloat16", 2, 2, 700e12},
    {CUDA_R_16F, false, "sm90_xmma_gemm_f16f16_f16f32_f32", "__half", 2, 2, 700e12},
    {CUDA_R_32F, true, "sm90_xmma_gemm_f32f32_tf32f32_f32", "float", 4, 2, 350e12},
    {CUDA_R_32F, false, "cutlass_80_simt_sgemm", "float", 4, 2, 45e12},
    {CUDA_R_64F, false, "cutlass_80_tensorop_d884gemm", "double", 8, 2, 45e12},
    {CUDA_C_32F, false, "cutlass_80_simt_cgemm", "float2", 8, 8, 45e12},
    {CUDA_C_64F, false, "cutlass_80_tensorop_z884gemm", "double2", 16, 8, 45e12},
};

const Type& TypeOf(cudaDataType type, bool tf32) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& known) {
    return known.type == type && known.tf32 == (tf32 && type == CUDA_R_32F);
  });
  return found != std::end(kTypes) ? *found : kTypes[3];
}

uint32_t Tiles(uint64_t size, uint32_t tile) { return static_cast<uint32_t>((size + tile - 1) / tile); }

uint64_t DurationNs(double work, double work_per_s) {
  return std::max(kShortestNs, static_cast<uint64_t>(std::ceil(work * 1e9 / work_per_s)));
}

}  // namespace

int Launch(const Product& product, cudaStream_t stream) {
  if (product.m == 0 || product.n == 0 || product.batch == 0) return 0;
  const Type& type = TypeOf(product.type, product.tensor_cores);
  const uint32_t tile = product.m >= 128 && product.n >= 128 ? 128 : 64;
  MatmulLaunch launch;
  launch.kernel_name = std::string(type.name) + '_' + (product.transpose_a ? 't' : 'n') +
                       (product.transpose_b ? 't' : 'n') + "_n_tilesize" + std::to_string(tile) + 'x' +
                       std::to_string(tile) + "x32_cublas";
  launch.grid[0] = Tiles(product.m, tile);
  launch.grid[1] = std::min(Tiles(product.n, tile), 65535U);
  launch.grid[2] = static_cast<uint32_t>(std::min<uint64_t>(product.batch, 65535));
  launch.duration_ns = DurationNs(static_cast<double>(type.operations) * static_cast<double>(product.m) *
                                      static_cast<double>(product.n) * static_cast<double>(product.k) *
                                      static_cast<double>(product.batch),
                                  type.operations_per_s);
  return LaunchMatmulKernel(stream, launch);
}

int LaunchGemv(const VectorProduct& product, cudaStream_t stream) {
  if (product.rows == 0 || product.columns == 0) return 0;
  const Type& type = TypeOf(product.type, false);
  MatmulLaunch launch;
  launch.kernel_name =
      std::string("gemv2") + (product.transpose ? 'T' : 'N') + "_kernel<" + type.element + '>';
  launch.grid[0] = Tiles(product.transpose ? product.columns : product.rows, launch.block);
  launch.duration_ns = DurationNs(
      static_cast<double>(product.rows) * static_cast<double>(product.columns) * type.bytes, kReadBytesPerS);
  return LaunchMatmulKernel(stream, launch);
}

int LaunchDot(uint64_t elements, cudaDataType type, cudaStream_t stream) {
  if (elements == 0) return 0;
  const Type& of = TypeOf(type, false);
  MatmulLaunch launch;
  launch.kernel_name = std::string("dot_kernel<") + of.element + '>';
  launch.grid[0] = std::min(Tiles(elements, launch.block), 65535U);
  launch.duration_ns = DurationNs(2.0 * static_cast<double>(elements) * of.bytes, kReadBytesPerS);
  return LaunchMatmulKernel(stream, launch);
}

}  // namespace gpusim::cublas
