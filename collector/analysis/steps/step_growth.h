// Steps that take longer and longer over the run, and which part of them grows.
//
// Example: 150 steps grow from 13 ms to 40 ms, a little in each. In the rank that waits least for others,
// kernels take as long as before, and the GPU is idle for 26 ms longer because the host launches late: the
// host does more in each step.
//
// A trend is judged over kGrowthWindows windows of equally many steps, each by its median, so that single
// long steps do not count. It needs a rise from window to window (Mann-Kendall) by more than steps differ
// within a window, that has not come to an end (a warm-up does), and that one jump describes worse than a
// line or a level that turns into a line: growth may be hidden behind the device's work at first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/model/steps/step_blocks.h"
#include "collector/report/step_growth.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// Of values in order of time. Absent: they do not grow, or nobody can tell.
std::optional<GrowthLine> GrowthIn(const std::vector<double>& values);

// A rank's parts of steps, a mean for each block of steps, in order of time.
struct StepPartSeries {
  std::optional<int> rank;
  std::array<std::vector<double>, model::kStepParts> parts;
};
// `series`: index of the rank whose parts `growth` describes.
struct ChosenGrowth {
  StepGrowth growth;
  size_t series = 0;
};
std::optional<ChosenGrowth> GrowthOfSteps(const std::vector<StepPartSeries>& ranks);

std::optional<StepGrowth> StepGrowthOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
