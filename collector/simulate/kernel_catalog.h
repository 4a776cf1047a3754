// Kernels that simulated programs launch: names as PyTorch, cuBLAS, cuDNN, flash-attention and NCCL have
// them, mangled as CUPTI gives them, with a launch geometry.
//
// Scenarios describe what a kernel does; only this table knows its name.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuprobe::simulate {

enum class Kernel : uint8_t {
  kGemmForward,
  kGemmBackwardInput,
  kGemmBackwardWeight,
  kAttentionForward,
  kAttentionBackward,
  kLayerNormForward,
  kLayerNormBackward,
  kGeluForward,
  kGeluBackward,
  kAdd,
  kFill,
  kReduce,
  kLossForward,
  kLossBackward,
  kEmbedding,
  kEmbeddingBackward,
  kConvolutionForward,
  kConvolutionBackwardData,
  kConvolutionBackwardWeight,
  kAdam,
  kZeroGradients,
  kNcclAllReduce,
  kNcclAllGather,
  kNcclReduceScatter,
  kNcclBroadcast,
  kNcclSendRecv,
  kCount,
};

struct KernelInfo {
  std::string_view name;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t registers;
  uint32_t shared_bytes;
};

const KernelInfo& InfoOf(Kernel kernel);

}  // namespace gpuprobe::simulate
