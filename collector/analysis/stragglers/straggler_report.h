// Finds the ranks that the others wait for: how much, how often, and why.
//
// In every collective the others' waiting is booked to the rank that came last (rank_comparison.h). This file
// collects what is known of each rank, straggler_verdict.h decides which stand out and why, and slow_ranks.h
// adds which kernels are slower. Ranks whose kernels are slower although nobody is known to wait for them are
// listed, too.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "collector/report/communication.h"
#include "collector/report/ranks.h"
#include "collector/report/steps.h"
#include "collector/report/stragglers.h"
#include "collector/report/waiting.h"

namespace gpuprobe::model {
class JobModel;
struct Member;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

StepMeans StepMeansOf(const model::Member& member);
// `pipeline`: stages wait for their neighbours by design, so waiting in sends and receives is counted apart.
// In any other job it is waiting like that in collectives.
CausedWait CausedWaitOf(const model::JobModel& job, const model::Member& member, bool pipeline);

// The costliest first. `ranks` supplies labels and devices.
std::vector<Straggler> StragglersOf(const model::JobModel& job, const std::vector<RankReport>& ranks,
                                    const std::optional<Pipeline>& pipeline);

}  // namespace gpuprobe::analysis
