// Timelines of the steps that report.html shows, taken from the run's logs.
//
// A step is shown from its earliest start to its latest end on any rank, on the reference rank's clock. Only
// the logs of the ranks shown are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/page/chosen_steps.h"
#include "collector/page/slices.h"
#include "collector/page/step_grid.h"
#include "collector/report/report.h"
#include "collector/store/run_files.h"

namespace gpuprobe::page {

struct RankTimeline {
  size_t member = 0;
  // The step on this rank, on the reference's clock; 0: it has no such step.
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  RankSlices slices;  // on the reference's clock
};

struct Timeline {
  ChosenStep chosen;
  uint64_t step = 0;  // as all ranks count
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  std::vector<RankTimeline> ranks;
};

struct Timelines {
  NameTable names;
  std::vector<Timeline> steps;  // in order
};

// `wanted`: as for ChooseSteps. `files`: of the run; a log that cannot be read leaves its rank empty.
Timelines TimelinesOf(const model::JobModel& job, const analysis::Report& report, const StepGrid& grid,
                      const store::RunFiles& files, std::span<const uint64_t> wanted);

}  // namespace gpuprobe::page
