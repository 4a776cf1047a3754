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
  bool tensor_cores;
  const char* name;
  double operations_per_s;
};
constexpr Type kTypes[] = {
    {CUDA_R_16BF, true, "sm90_xmma_gemm_bf16bf16_bf16f32_f32", 700e12},
    {CUDA_R_16F, true, "sm90_xmma_gemm_f16f16_f16f32_f32", 700e12},
    {CUDA_R_32F, true, "sm90_xmma_gemm_f32f32_tf32f32_f32", 350e12},
    {CUDA_R_32F, false, "cutlass_80_simt_sgemm", 45e12},
    {CUDA_R_64F, true, "cutlass_80_tensorop_d884gemm", 45e12},
};

const Type& TypeOf(const Product& product) {
  const bool tensor_cores = product.type != CUDA_R_32F || product.tensor_cores;
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Type& known) {
    return known.type == product.type && known.tensor_cores == tensor_cores;
  });
  return found != std::end(kTypes) ? *found : kTypes[3];
}

uint32_t Tiles(uint64_t size, uint32_t tile) { return static_cast<uint32_t>((size + tile - 1) / tile); }

}  // namespace

int Launch(const Product& product, cudaStream_t stream) {
  if (product.m == 0 || product.n == 0 || product.batch == 0) return 0;
  const Type& type = TypeOf(product);
  const uint32_t tile = product.m >= 128 && product.n >= 128 ? 128 : 64;
  MatmulLaunch launch;
  launch.kernel_name = std::string(type.name) + '_' + (product.transpose_a ? 't' : 'n') +
                       (product.transpose_b ? 't' : 'n') + "_n_tilesize" + std::to_string(tile) + 'x' +
                       std::to_string(tile) + "x32_cublas";
  launch.grid[0] = Tiles(product.m, tile);
  launch.grid[1] = std::min(Tiles(product.n, tile), 65535U);
  launch.grid[2] = static_cast<uint32_t>(std::min<uint64_t>(product.batch, 65535));
  const double operations = 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                            static_cast<double>(product.k) * static_cast<double>(product.batch);
  launch.duration_ns =
      std::max(kShortestNs, static_cast<uint64_t>(std::ceil(operations * 1e9 / type.operations_per_s)));
  return LaunchMatmulKernel(stream, launch);
}

}  // namespace gpusim::cublas
