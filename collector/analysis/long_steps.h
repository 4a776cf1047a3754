// A few steps that take much longer than the others: which ones, and who was late in them.
//
// Separate from the stragglers, which are ranks that are late more often than by chance: an event in two of
// twenty steps may be anybody's bad luck, and is worth knowing all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

struct LongStepsReport {
  struct Step {
    uint64_t step = 0;  // as all ranks count
    double time_ns = 0;
    std::optional<int> last_rank;  // the one that was late by most; absent: none was
    double late_by_ns = 0;
  };
  uint64_t compared_steps = 0;
  double usual_ns = 0;      // median
  double cost_ns = 0;       // of the average step: what is not usual in these
  std::vector<Step> steps;  // in order
};

// Absent where no step stands out, or so many do that they are not few.
std::optional<LongStepsReport> LongStepsOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
