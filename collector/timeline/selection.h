// Which part of a run a timeline shows: ranks, steps, or the moment that a finding is about.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/analysis/finding_rules.h"
#include "collector/timeline/memory_levels.h"

namespace gpuprobe::timeline {

// Steps from `first` on and before `end`.
struct StepSpan {
  uint64_t first = 0;
  uint64_t end = UINT64_MAX;
};
// "100:110" (100 to 109), "100:", ":10", or "100". InvalidArgument says what is allowed.
absl::StatusOr<StepSpan> ParseSteps(const std::string& text);
// "0,3,8-11", ascending.
absl::StatusOr<std::vector<int>> ParseRanks(const std::string& text);

// A step of one process, on the reference rank's clock.
struct AlignedStep {
  uint64_t index = 0;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  bool warmup = false;
};

// From the first of these steps' start on any rank to the last one's end. NotFound if the run has none of
// them.
absl::StatusOr<Window> WindowOfSteps(const std::vector<AlignedStep>& steps, StepSpan span);

// The step of that moment and the ones before and after it; where there are no steps, a second before and
// after. `what`: says which.
absl::StatusOr<Window> WindowOfMoment(const analysis::Moment& moment, const std::vector<AlignedStep>& steps,
                                      std::string& what);

}  // namespace gpuprobe::timeline
