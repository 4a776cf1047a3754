// Ranks that the others wait for: how much, how often, and why, as far as the records tell.
//
// Separate from slow_ranks.h, which compares kernels alone. In every collective the others' waiting belongs
// to the rank that came last (rank_comparison.h). A rank stands out when it is late in more steps than chance
// gives it (or its kernels are slower, which is no chance) and these steps are longer for it (lateness.h).
// Where steps cannot be compared, because records were lost or in a pipeline: when each other rank waits at
// least kWaitedStepShare of a step for it and its robust z-score over the ranks is at least kRobustZScore;
// with two ranks, when it causes three times the other's waiting. Its lateness is explained by the part of
// its step that exceeds the other ranks' median most: compute (slower kernels, or more work if it launches
// more threads), idle because its host launches late, waiting for input, or copies. Without such a part it is
// no finding. In a pipeline ranks wait for each other by design, and for whom the neighbour waits: a stage is
// slow when it takes at least kSlowStageStepShare of a step longer than the others, and of all makes others
// wait most for what it waits itself.
#pragma once

#include <optional>
#include <vector>

#include "collector/analysis/report.h"
#include "collector/model/job_model.h"

namespace gpuprobe::analysis {

StepMeans StepMeansOf(const model::ProcessModel& process);
CausedWait CausedWaitOf(const model::JobModel& job, size_t process);

// Who costs most first. `ranks` supplies labels and devices.
std::vector<Straggler> StragglersOf(const model::JobModel& job, const std::vector<RankReport>& ranks,
                                    const std::optional<Pipeline>& pipeline);

}  // namespace gpuprobe::analysis
