// Infers from a kernel's name what kind of work it does.
//
// Separate because it is one table of words that the field's libraries use in their kernels' names (cuBLAS,
// cuDNN, CUTLASS, PyTorch, Triton, FlashAttention, Apex, NCCL). A guess by name: kernels of a program's own
// are mostly `other`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collector/model/process/process_model.h"
#include "collector/report/work.h"

namespace gpuprobe::analysis {

inline constexpr size_t kKernelClasses = 10;

// `demangled`: as a person would write it; a name that is not mangled is one, too.
KernelClass KernelClassOf(std::string_view demangled);
// The same, where launches may say that the name is another kernel's: that is all that is known then.
KernelClass KernelClassOf(const model::KernelTotals& kernel, std::string_view demangled);

// The kernel's name as it was recorded, mangled. One that is another kernel's is called so: "NCCL kernel
// (recorded as triton_poi_fused_0)".
std::string KernelName(const model::ProcessModel& process, const model::KernelTotals& kernel);

// Whether torch.compile made it.
bool IsCompiledByInductor(std::string_view demangled);

// Whether it updates many parameters at once, as PyTorch's fused optimizers and Apex's do.
bool IsFusedOptimizer(std::string_view demangled);

}  // namespace gpuprobe::analysis
