// What memory is held by, from when its allocations were made and freed.
//
// Separate from memory_report.h because it judges: whether lifetimes can be seen at all, and what probably
// lives so long.
#pragma once

#include <optional>

#include "collector/analysis/report.h"
#include "collector/model/memory_lifetimes.h"

namespace gpuprobe::analysis {

// nullopt: no two steps were seen.
std::optional<MemoryLifetimesReport> LifetimesOf(const model::MemoryLifetimes& lifetimes);

// Of driver calls, where a caching allocator of PyTorch's is at work: it asks the driver for segments, whose
// lives are not those of what is in them.
std::optional<MemoryLifetimesReport> DriverLifetimesOf(const model::MemoryLifetimes& lifetimes,
                                                       const std::optional<MemoryTrend>& driver,
                                                       const std::optional<MemoryTrend>& pytorch);

// "20 allocations of 4.0 MiB made in forward": what of one size is kept from every step; empty: nothing.
std::string GrowthText(const MemoryLifetimesReport& report);

}  // namespace gpuprobe::analysis
