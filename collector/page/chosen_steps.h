// Which steps report.html shows as timelines, and of which ranks: the slowest step, the median one, and one
// that shows what each finding says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/page/step_grid.h"
#include "collector/report/report.h"

namespace gpuprobe::page {

inline constexpr size_t kMostTimelines = 8;
inline constexpr size_t kMostTimelineRanks = 16;

struct ChosenStep {
  size_t column = 0;  // of the grid: its longest step
  bool slowest = false;
  bool median = false;
  std::vector<size_t> findings;  // by their place in the report
};

// By column. The warm-up is never the slowest step: it is a warning of its own. `wanted`: steps as all ranks
// count that are shown besides, as far as there are such.
std::vector<ChosenStep> ChooseSteps(const model::JobModel& job, const analysis::Report& report,
                                    const StepGrid& grid, std::span<const uint64_t> wanted = {});

// Members, ascending: all, or those that findings name and the ones around them in step time.
std::vector<size_t> ChooseMembers(const model::JobModel& job, const analysis::Report& report,
                                  const StepGrid& grid);

// The first member of this rank.
std::optional<size_t> MemberOf(const model::JobModel& job, int rank);

}  // namespace gpuprobe::page
