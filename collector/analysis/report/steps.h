// Where the time of steps went, for one process or all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::analysis {

// Where records were lost, statistics are over the complete steps. These are half the widths of the 95 %
// intervals for the mean over all steps, provided that losses hit steps at random.
struct StepErrors {
  double total_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
  std::optional<double> overlap_efficiency;
};

// Statistics are over steps after the warm-up; for the job: over the steps of all ranks.
struct StepsReport {
  uint64_t count = 0;  // with the warm-up; for the job: of the rank with most
  uint64_t warmup_count = 0;
  uint64_t incomplete_count = 0;     // steps in which records were lost: in no statistics,
  bool estimated = false;            // unless there are too few others
  std::optional<StepErrors> errors;  // present where records were lost
  std::string source;                // "marker nvtx collectives kernels optimizer"
  double confidence = 0;             // 0 to 1, StepTracker::confidence; for the job: the least of its ranks
  model::Summary time_ns;
  model::Summary compute_ns;
  model::Summary comm_ns;
  model::Summary exposed_comm_ns;
  model::Summary overlapped_comm_ns;
  model::Summary copy_ns;
  model::Summary idle_ns;
  model::Summary host_bound_ns;
  model::Summary input_ns;
  model::Summary sync_ns;
  model::Summary launch_gap_ns;
  model::Summary unknown_ns;
  // (compute + comm - total) / (compute + comm - max(compute, comm)), of the sums over all steps, where total
  // is the time of the joint union; 1: as much is hidden as can be. Absent without compute or communication.
  std::optional<double> overlap_efficiency;
  std::optional<double> hidden_comm_share;  // of communication's time: overlapped / comm
  struct Phase {
    std::string name;  // "input h2d forward backward optimizer communication other"
    model::Summary time_ns;
    model::Summary idle_ns;  // the part in which nothing ran, and the device waited for this phase's work
  };
  std::vector<Phase> phases;
  std::string phase_source;  // "nvtx", "inferred", or "mixed"
  // For one process: the offset from the index of its last step to the other ranks' number of it
  // (step_alignment.h); already added in `records`.
  int64_t behind = 0;
  std::vector<model::StepRecord> records;  // of one process, on request: the last ones
};

// Means over a rank's steps, warm-up left out.
struct StepMeans {
  uint64_t steps = 0;
  double total_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;
  double exposed_comm_ns = 0;
  double copy_ns = 0;
  double idle_ns = 0;
  double host_bound_ns = 0;
  double input_ns = 0;
  double sync_ns = 0;
  double launch_gap_ns = 0;
  double h2d_ns = 0;
};

}  // namespace gpuprobe::analysis
