// Ranks whose kernels take longer than the same kernels on the other ranks.
//
// Separate from findings, which only words it: this is the comparison. A rank's slow-down is the time of its
// kernels over the time that the same launches would have taken at the other ranks' pace (the median over
// ranks of each kernel's mean); NCCL's kernels, which wait for others, do not count. Only kernels that every
// compared rank launched equally often are compared, so that more work is not taken for slower work.
#pragma once

#include <vector>

#include "collector/analysis/report.h"
#include "collector/model/job_model.h"

namespace gpuprobe::analysis {

// Fewest ranks that can be told apart: of two, either may be the odd one.
inline constexpr size_t kLeastRanksCompared = 3;
// "Slower by 10 %" is the field's usual threshold for a straggler.
inline constexpr double kSlowdownThreshold = 1.10;
// Robust z-score (median and median absolute deviation): with n ranks an ordinary z-score cannot exceed
// sqrt(n - 1).
inline constexpr double kRobustScoreThreshold = 3.5;

// Slowest first; empty when nobody stands out or fewer than kLeastRanksCompared ranks can be compared.
// `ranks` supplies labels, devices and waiting times.
std::vector<Straggler> SlowRanksOf(const model::JobModel& job, const std::vector<RankReport>& ranks);

}  // namespace gpuprobe::analysis
