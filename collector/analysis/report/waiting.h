// How long a rank made others wait, and waited itself, in collectives.
#pragma once

#include <cstdint>
#include <optional>

namespace gpuprobe::analysis {

struct CausedWait {
  double total_ns = 0;     // sum over the others' waiting
  double mean_ns = 0;      // of each other rank in the call, over the run
  double per_step_ns = 0;  // of each other rank
  double waited_ns = 0;    // its own
  uint64_t last_arrivals = 0;
  uint64_t steps = 0;         // compared
  uint64_t steps_blamed = 0;  // in which each other rank waited 5 % of the step for it
  uint64_t first_blamed_step = 0;
  uint64_t last_blamed_step = 0;
  // Where records were lost: share of its collectives that could be compared, from which all of the above is
  // scaled up, and half the width of the 95 % interval about per_step_ns. 1 and absent: nothing was lost; 0
  // and absent: too much to say anything.
  double compared_share = 1;
  // Among the others: share of its collectives in which the last arrival was inferred from the ranks that
  // were seen.
  double estimated_share = 0;
  std::optional<double> per_step_error_ns = std::nullopt;
  // In sends and receives alone, where a rank waits for its neighbour: sums over the ranks that waited.
  uint64_t pairs = 0;  // compared
  double pair_total_ns = 0;
  double pair_per_step_ns = 0;
  double pair_waited_ns = 0;  // its own
};

}  // namespace gpuprobe::analysis
