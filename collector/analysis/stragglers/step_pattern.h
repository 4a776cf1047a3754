// Whether something happens every so many steps, for so many steps.
//
// Example: {30, 60, 90, 120} is one of every 30; {0..14, 30..44, 60..74} is 15 of every 30, and so it is with
// a few single steps between. Three times are enough if they are equally far apart; with more, or if each is
// long, each may be off by a step. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collector/report/long_steps.h"

namespace gpuprobe::analysis {

// `steps`: ascending; the last time may have been cut off.
std::optional<StepPattern> StepPatternOf(std::span<const uint64_t> steps);

// The same, else that of single steps with at most one other to four of them: {30, 47, 60, 90, 120}.
std::optional<StepPattern> StepPatternOfMost(std::span<const uint64_t> steps);

// "every 30 steps", "for 15 of every 30 steps"
std::string PatternText(const StepPattern& pattern);

}  // namespace gpuprobe::analysis
