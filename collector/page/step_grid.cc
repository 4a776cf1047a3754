#include "collector/page/step_grid.h"

#include <algorithm>

#include "collector/model/steps/step_series.h"

namespace gpuprobe::page {
namespace {

using model::CausedSeries;
using model::StepColumn;
using model::StepSeries;

// Calls visit(first step as all ranks count, column) for every column of the member that has steps.
template <typename Visit>
void ForEachColumn(const model::JobModel& job, size_t member, Visit visit) {
  const StepSeries& series = job.members()[member].steps().series();
  for (size_t i = 0; i < series.columns().size(); ++i) {
    const StepColumn& column = series.columns()[i];
    if (column.steps > 0) visit(JobStep(job, member, series.first() + (i << series.shift())), column);
  }
}

struct Extent {
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  uint64_t steps_per_column = 1;
  size_t members = 0;
};

Extent ExtentOf(const model::JobModel& job) {
  Extent extent;
  for (size_t member = 0; member < job.members().size(); ++member) {
    bool any = false;
    ForEachColumn(job, member, [&](uint64_t step, const StepColumn&) {
      extent.first = std::min(extent.first, step);
      extent.last = std::max(extent.last, step);
      any = true;
    });
    if (!any) continue;
    ++extent.members;
    extent.steps_per_column =
        std::max(extent.steps_per_column, uint64_t{1} << job.members()[member].steps().series().shift());
  }
  return extent;
}

// Sums over the steps of a cell; they become means.
struct Sums {
  StepColumn steps;
  uint64_t caused_ns = 0;
};

StepCell CellOf(const Sums& sums) {
  const StepColumn& s = sums.steps;
  const auto mean = [&](uint64_t sum) {
    return static_cast<float>(static_cast<double>(sum) / static_cast<double>(s.steps));
  };
  if (s.steps == 0) return {};
  return {.steps = static_cast<uint32_t>(s.steps),
          .incomplete = static_cast<uint32_t>(s.incomplete),
          .total_ns = mean(s.total_ns),
          .compute_ns = mean(s.compute_ns),
          .exposed_comm_ns = mean(s.exposed_comm_ns),
          .copy_ns = mean(s.copy_ns),
          .caused_wait_ns = mean(sums.caused_ns),
          .start_ns = s.start_ns};
}

std::vector<StepCell> RowOf(const model::JobModel& job, size_t member, const StepGrid& grid) {
  std::vector<Sums> sums(grid.columns);
  const auto at = [&](uint64_t step) -> Sums& {
    const uint64_t place = (step - std::min(step, grid.first_step)) / grid.steps_per_column;
    return sums[static_cast<size_t>(std::min<uint64_t>(place, grid.columns - 1))];
  };
  bool any = false;
  ForEachColumn(job, member, [&](uint64_t step, const StepColumn& column) {
    at(step).steps.Join(column);
    any = true;
  });
  if (!any) return {};
  const auto& blame = job.comparison().blame();
  if (member < blame.size()) {
    const CausedSeries& caused = blame[member].caused_by_step;
    for (size_t i = 0; i < caused.columns().size(); ++i)
      at(JobStep(job, member, caused.first() + (i << caused.shift()))).caused_ns +=
          caused.columns()[i].caused_ns;
  }
  std::vector<StepCell> row;
  row.reserve(grid.columns);
  for (const Sums& cell : sums) row.push_back(CellOf(cell));
  return row;
}

}  // namespace

uint64_t JobStep(const model::JobModel& job, size_t member, uint64_t index) {
  const int64_t step =
      static_cast<int64_t>(index) + job.comparison().alignment().Behind(static_cast<uint32_t>(member), index);
  return static_cast<uint64_t>(std::max<int64_t>(step, 0));
}

StepGrid StepGridOf(const model::JobModel& job) {
  const Extent extent = ExtentOf(job);
  StepGrid grid;
  grid.rows.resize(job.members().size());
  if (extent.members == 0) return grid;
  grid.first_step = extent.first;
  grid.steps_per_column = extent.steps_per_column;
  const auto columns = [&] { return (extent.last - extent.first) / grid.steps_per_column + 1; };
  while (columns() > StepSeries::kMost || columns() * extent.members > StepGrid::kMostCells)
    grid.steps_per_column *= 2;
  grid.columns = static_cast<size_t>(columns());
  for (size_t member = 0; member < grid.rows.size(); ++member) grid.rows[member] = RowOf(job, member, grid);
  return grid;
}

StepWindow LongestStep(const model::JobModel& job, size_t member, const StepGrid& grid, size_t column) {
  const uint64_t begin = grid.first_step + column * grid.steps_per_column;
  const StepColumn* longest = nullptr;
  ForEachColumn(job, member, [&](uint64_t step, const StepColumn& candidate) {
    if (step < begin || step >= begin + grid.steps_per_column) return;
    if (longest == nullptr || candidate.longest_ns > longest->longest_ns) longest = &candidate;
  });
  if (longest == nullptr) return {};
  return {.step = JobStep(job, member, longest->longest_step),
          .start_ns = longest->longest_start_ns,
          .end_ns = longest->longest_start_ns + longest->longest_ns};
}

}  // namespace gpuprobe::page
