// Infers from a kernel's name what kind of work it does.
//
// Separate because it is one table of words that the field's libraries use in their kernels' names (cuBLAS,
// cuDNN, CUTLASS, PyTorch, Triton, FlashAttention, Apex, NCCL). A guess by name: kernels of a program's own
// are mostly `other`.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuprobe::analysis {

enum class KernelClass : uint8_t {
  kGemm,
  kConvolution,
  kAttention,
  kNormalisation,
  kElementwise,
  kReduction,
  kOptimizer,
  kCopy,
  kCollective,
  kOther,
};
inline constexpr size_t kKernelClasses = 10;

// "gemm convolution attention normalisation elementwise reduction optimizer copy collective other"
std::string_view KernelClassName(KernelClass kernel_class);

// `demangled`: as a person would write it; a name that is not mangled is one, too.
KernelClass KernelClassOf(std::string_view demangled);

// Whether torch.compile made it.
bool IsCompiledByInductor(std::string_view demangled);

// Whether it updates many parameters at once, as PyTorch's fused optimizers and Apex's do.
bool IsFusedOptimizer(std::string_view demangled);

}  // namespace gpuprobe::analysis
