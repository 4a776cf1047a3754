// What holds memory, inferred from allocation and free times.
//
// Separate from memory_report.h because it judges: whether lifetimes can be seen at all, and what probably
// lives so long.
#pragma once

#include <optional>
#include <string>

#include "collector/model/memory/memory_lifetimes.h"
#include "collector/report/memory.h"

namespace gpuprobe::analysis {

// nullopt: no two steps were seen.
std::optional<MemoryLifetimesReport> LifetimesOf(const model::MemoryLifetimes& lifetimes);

// For driver calls under PyTorch's caching allocator: it asks the driver for segments, whose lifetimes are
// not those of the memory in them.
std::optional<MemoryLifetimesReport> DriverLifetimesOf(const model::MemoryLifetimes& lifetimes,
                                                       const std::optional<MemoryTrend>& driver,
                                                       const std::optional<MemoryTrend>& pytorch);

// "20 allocations of 4.0 MiB made in forward": allocations of one size kept from every step; empty: none.
std::string GrowthText(const MemoryLifetimesReport& report);

}  // namespace gpuprobe::analysis
