// The programs of a job's ranks: what a transformer does as PyTorch runs it.
//
// Forward on the main thread, backward on autograd's, gradients reduced in buckets on a stream of their own,
// a fused optimizer, the batch copied from pinned memory. The node only runs the programs.
#pragma once

#include <string>
#include <vector>

#include "collector/simulate/program.h"
#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

// The stream of a rank on which ranks with the same weights share gradients.
inline constexpr uint8_t kDataStream = 1;

// Names of ranges that a job's programs push.
const std::vector<std::string>& RangeNames();

// The instructions before the first step.
void BuildSetup(const TrainingJob& job, Program& program);
void BuildStep(const TrainingJob& job, int rank, int step, Program& program);
// Between two steps; empty when there is no evaluation after this step.
void BuildEvaluation(const TrainingJob& job, int rank, int step, Program& program);

}  // namespace gpuprobe::simulate
