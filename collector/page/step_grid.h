// Every rank's steps on one grid of columns, as the charts of report.html draw them: where a step's time
// went, and how long the others waited for the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/job/job_model.h"

namespace gpuprobe::page {

// Means over the steps of a column; `steps` 0: the rank has none there.
struct StepCell {
  uint32_t steps = 0;
  uint32_t incomplete = 0;  // steps in which records were lost
  float total_ns = 0;
  float compute_ns = 0;
  float exposed_comm_ns = 0;
  float copy_ns = 0;
  float caused_wait_ns = 0;
  uint64_t start_ns = 0;  // of the first step, on the process's clock
};

// A column holds the steps [first_step + i * steps_per_column, ... + steps_per_column), as all ranks count.
struct StepGrid {
  // A grid of more cells gets coarser columns, so that the page of a thousand ranks stays below 20 MB.
  static constexpr size_t kMostCells = size_t{1} << 19;

  uint64_t first_step = 0;
  uint64_t steps_per_column = 1;
  size_t columns = 0;
  std::vector<std::vector<StepCell>> rows;  // by member of the job, `columns` each; empty: it has no steps
};

StepGrid StepGridOf(const model::JobModel& job);

// The number by which all ranks know the step that the member calls `index`.
uint64_t JobStep(const model::JobModel& job, size_t member, uint64_t index);

// A step of one member, on its process's clock.
struct StepWindow {
  uint64_t step = 0;  // as all ranks count
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
};

// The longest step that the member has in `column` of the grid; end_ns 0: it has none.
StepWindow LongestStep(const model::JobModel& job, size_t member, const StepGrid& grid, size_t column);

}  // namespace gpuprobe::page
