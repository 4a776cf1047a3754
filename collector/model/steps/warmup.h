// How many of a program's first steps are warm-up: compilation, autotuning, first allocations.
//
// Separate from StepTracker, which finds the steps: this only looks at how long they took. The answer is
// recomputed with every step until kWarmupLook of them are known, and is final from then on: it is the same
// live and offline, and needs only these steps' lengths.
#pragma once

#include <cstddef>
#include <deque>

#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

inline constexpr size_t kFirstWarmupLook = 12;  // steps; before, only where the run is over
inline constexpr size_t kWarmupLook = 128;
// A warm-up step is longer than the median of the later half by this factor.
inline constexpr double kWarmupFactor = 2;

// `steps`: a program's first steps, in order. The later half shows the usual length as long as most of it is
// steady, so a warm-up of up to three quarters of these steps is found. 0 for fewer than three.
size_t WarmupLength(const std::deque<StepRecord>& steps);

}  // namespace gpuprobe::model
