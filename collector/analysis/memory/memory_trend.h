// How much of a device's memory is held across steps and how much lives within one, and whether the former
// grows.
//
// Separate from the ledger's report because it puts two things together: levels over time and steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collector/model/memory/level_history.h"
#include "collector/report/memory.h"

namespace gpuprobe::analysis {

// Growth is judged from this many steps on.
inline constexpr size_t kLeastStepsForTrend = 10;

// `step_starts_ns`: when the host began each step, in order, on the clock of the levels; it may be many
// launches ahead of the device. nullopt with fewer than kLeastStepsForTrend steps, or without levels. Growth:
// the slope of the least level of equal groups of steps, by Theil and Sen; it counts as growth only if
// Mann and Kendall's test finds the levels rising (z > 3), they rose at least six times, the last third still
// rises, and the rise is at least 1 % of the level.
std::optional<MemoryTrend> TrendOf(const model::LevelHistory& history,
                                   const std::vector<uint64_t>& step_starts_ns,
                                   std::optional<uint64_t> capacity_bytes);

}  // namespace gpuprobe::analysis
