// The devices' work: kernels by name and by class, short ones, copies through pageable memory, and how much
// of the devices' peak the model's arithmetic used.
//
// Separate because it needs no timeline: sums over names, sizes and the number of steps.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "collector/report/conditions.h"
#include "collector/report/utilisation.h"
#include "collector/report/work.h"

namespace gpuprobe::model {
class JobModel;
struct Member;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

struct Report;

inline constexpr size_t kTopKernels = 20;
// The `limit` kernels with most total time, with their share, class and most used launch geometry.
std::vector<KernelReport> TopKernelsOf(const std::vector<model::Member>& members, size_t limit = kTopKernels);

ComputeReport ComputeOf(const model::JobModel& job);

// Once the ranks' memory and the steps are in the report.
std::optional<OptimizerTraffic> OptimizerTrafficOf(const Report& report);

// Model FLOPs utilisation: FLOPs per step / (step time x devices x peak FLOP/s of the type), and hardware
// FLOPs utilisation, with recomputation counted (formulas.md; Chowdhery et al., PaLM, appendix B). Empty
// parts say in `missing` what they lack. `step_seconds`: 0 if it is not known.
UtilisationReport UtilisationOf(const ModelWork& work, const Conditions& conditions, double step_seconds);

}  // namespace gpuprobe::analysis
