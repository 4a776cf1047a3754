// Ranks whose kernels take longer than the same kernels on the other ranks.
//
// Separate from findings, which only words it: this is the comparison. A rank's slow-down is its kernels'
// time divided by the time that the same launches would have taken at the other ranks' pace (the median over
// ranks of each kernel's mean); NCCL's kernels, which wait for others, do not count. Only kernels that every
// compared rank launched equally often are compared, so that more work is not mistaken for slower work.
#pragma once

#include <vector>

#include "collector/report/ranks.h"
#include "collector/report/stragglers.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// Slowest first; empty when nobody stands out or fewer than thresholds::kComparedRanks ranks can be compared.
// `ranks` supplies labels, devices and waiting times.
std::vector<Straggler> SlowRanksOf(const model::JobModel& job, const std::vector<RankReport>& ranks);

}  // namespace gpuprobe::analysis
