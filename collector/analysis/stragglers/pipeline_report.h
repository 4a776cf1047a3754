// Whether the job is a pipeline, and how much of a step is pipeline bubble.
//
// Separate from the rest of communication because in a pipeline waiting is the design: a stage waits for its
// neighbours in sends and receives, and only for them. Pure.
#pragma once

#include <optional>

#include "collector/analysis/communication/exchanges.h"
#include "collector/model/job/job_model.h"
#include "collector/report/communication.h"

namespace gpuprobe::analysis {

// Stages are the ranks that hand on to each other (exchanges.h); a first or last stage sends once for each
// microbatch. Counted in steps that were seen whole. nullopt: no pipeline, or no steps. The least bubble is
// that of one forward, one backward (D. Narayanan et al., Efficient Large-Scale Language Model Training on
// GPU Clusters, 2021).
std::optional<Pipeline> PipelineOf(const model::JobModel& job, const Exchanges& exchanges);

}  // namespace gpuprobe::analysis
