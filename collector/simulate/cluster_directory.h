// Writes a day of a cluster (cluster_day.h) as a hub has it that was ended before it reported anything: a run
// directory for each job, with a folder for each host. A hub that begins there reports all of them.
//
//   DIR/20261128T093012Z-node-03_29500_pretrain-7/
//     job.txt                         name and attempt, written when the job began
//     node-03/rank-0.gpr ...          all records of a small job; of a large one, roll-ups
//   DIR/truth.json                    what is wrong with each, and what it costs
//
// The truth comes from the simulated node's settings and schedule. A fault's cost is by how much a step is
// longer than in the same simulation without it; a fault that costs less than kLeastCost of a step is made
// more severe. Without its fault, a job would gain less than that if its links were free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gpuprobe::simulate {

struct ClusterOptions {
  uint64_t seed = 1;
  int jobs = 40;
  double hours = 24;
  uint64_t ends_ns = 0;  // CLOCK_REALTIME at the day's end
  std::string directory;
  uint32_t uid = 0;
  std::vector<std::string> command_line;
};

inline constexpr double kLeastCost = 0.05;

absl::Status WriteClusterDay(const ClusterOptions& options);

}  // namespace gpuprobe::simulate
