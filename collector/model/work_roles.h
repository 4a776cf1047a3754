// What names say about the place of work in a training step: kernels of optimizers and of backward passes,
// PyTorch's autograd threads, annotated ranges.
//
// Separate so that every list of names stands in one place. Pure. Matching ignores case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collector/model/step_record.h"

namespace gpuprobe::model {

// kRoleOptimizer, kRoleBackwardName, kRoleLossName (step_operation.h), by a kernel's name, mangled or not.
uint8_t RolesOfKernel(std::string_view name);
// kRoleAutogradThread: PyTorch names the threads that run backward passes pt_autograd_<device>.
uint8_t RolesOfThread(std::string_view name);
// What of a range's name tells steps apart is left out: "ProfilerStep#17" and "ProfilerStep#18" are one kind.
std::string KindOfRange(std::string_view name);
// Of an NVTX domain: a library's, which marks its own work in it. Its ranges tell neither steps nor phases.
bool IsLibraryDomain(std::string_view domain);
// Ranges of this kind look like steps.
bool LooksLikeStep(std::string_view kind);
// The phase that a range of this kind annotates.
std::optional<StepPhase> PhaseOfRange(std::string_view kind);

}  // namespace gpuprobe::model
