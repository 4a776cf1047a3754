// Infers the place of work in a training step from names: kernels of optimizers and of backward passes,
// PyTorch's autograd threads, annotated ranges.
//
// Separate so that every list of names is in one place. Pure. Matching ignores case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// By a kernel's name, mangled or not: kRoleOptimizer, kRoleBackwardName, kRoleLossName, kRoleMemset and those
// of PyTorch's kernels (step_operation.h). kRoleSeed depends on its size, too.
uint16_t RolesOfKernel(std::string_view name);
// kRoleAutogradThread: PyTorch names the threads that run backward passes pt_autograd_<device>.
uint8_t RolesOfThread(std::string_view name);
// Drops the part of a range's name that differs between steps: "ProfilerStep#17", "ProfilerStep#18" are one
// kind.
std::string KindOfRange(std::string_view name);
// Whether a library marks its own work in this NVTX domain. Its ranges mark neither steps nor phases.
bool IsLibraryDomain(std::string_view domain);
// Whether PyTorch opens this range itself, around an operator (emit_nvtx): "aten::mm", "MmBackward0",
// "Optimizer.step#AdamW.step"; or DeepSpeed around one of its functions, which hooks call in every phase:
// "DeepSpeedZeroOptimizer_Stage3.partition_grads". Such ranges say nothing about phases that kernels and
// threads do not say better: nobody opens one around each phase.
bool IsOperatorRange(std::string_view name);
// Ranges of this kind look like steps.
bool LooksLikeStep(std::string_view kind);
// Ranges of this kind surround the loading of a batch: "dataloader", "fetch_batch", "input".
bool LooksLikeInput(std::string_view kind);
// The phase that a range of this kind annotates.
std::optional<StepPhase> PhaseOfRange(std::string_view kind);

}  // namespace gpuprobe::model
