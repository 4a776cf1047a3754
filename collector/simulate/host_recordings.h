// Records a simulated job as the collectors of its hosts do, and as a hub has it then: a folder for each host
// with a complete log of each rank.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "collector/simulate/simulation.h"
#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

// `directory` exists.
absl::Status RecordHosts(const TrainingJob& job, const SimulationOptions& options,
                         const std::string& directory);

}  // namespace gpuprobe::simulate
