// A simulated job on two hosts as a job on many, rolled up as each host would (store/roll_up_recording.h):
// what the hub of a job with thousands of ranks gets, at the cost of reading the records of one host so many
// times.
//
// The first host of the simulation stands for all but one; the second, where the fault is, for itself.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "collector/simulate/simulation.h"
#include "collector/simulate/training_job.h"

namespace gpuprobe::simulate {

struct ManyHosts {
  int hosts = 0;
  std::string directory;  // gets a folder for each host, as a hub has it
};

// InvalidArgument: the job's communicators span neither all ranks nor those of one host.
absl::Status RollUpManyHosts(const TrainingJob& job, const SimulationOptions& options, const ManyHosts& many);

}  // namespace gpuprobe::simulate
