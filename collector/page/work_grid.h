// Kernels and collectives of every rank on a grid of columns of steps: what report.html shows of the steps
// and ranks that somebody selects, and how a kernel's time goes over the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/steps/work_columns.h"
#include "collector/page/step_grid.h"
#include "collector/report/report.h"

namespace gpuprobe::page {

// Sums over the complete steps of a column.
struct WorkCell {
  uint64_t calls = 0;
  uint64_t time_ns = 0;
  // Of the plans that were compared with other ranks, by when they ended: they are counted in slices of time,
  // and a slice that reaches over several columns counts in each by its part.
  double transfers = 0;
  double transfer_ns = 0;
};

// Rows are the report's ranks; an empty one had no such call. A column holds as many steps as in StepGrid, or
// a multiple of that.
struct WorkGrid {
  // A grid of more cells gets coarser columns, so that the page stays small.
  static constexpr size_t kMostCells = size_t{1} << 17;
  using Rows = std::vector<std::vector<WorkCell>>;

  uint64_t steps_per_column = 1;
  size_t columns = 0;
  std::vector<std::vector<uint32_t>> steps;        // by row and column: complete ones
  std::vector<Rows> kernels;                       // by their place in the report's top_kernels
  std::vector<model::WorkColumns::Phases> phases;  // of these, of all rows and columns
  std::vector<Rows> collectives;                   // by their place in the report's collectives
};

// `members`: of the report's ranks.
WorkGrid WorkGridOf(const model::JobModel& job, const analysis::Report& report,
                    const std::vector<size_t>& members, const StepGrid& grid);

}  // namespace gpuprobe::page
