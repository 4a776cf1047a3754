// Estimates from its launch geometry how much of a device's warp slots a kernel can occupy.
//
// Example: 256 threads a block, 64 registers a thread on an H100 (132 SMs, 64 warps each). Registers allow 4
// blocks of 8 warps per SM, so a grid of 1,056 blocks reaches 32 of 64 warps: 50 %. A grid of 66 blocks fills
// half of the SMs with one block each: 6.25 %.
#pragma once

#include <optional>

#include "collector/timeline/events.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::timeline {

struct Occupancy {
  double blocks_per_sm = 0;  // of the grid, whether or not they fit at the same time
  double warps_per_sm = 0;   // the same in warps
  double share = 0;          // of the warp slots, 0 to 1; the most that the geometry allows
};

// Absent where the device's limits are not known, or the geometry is invalid.
std::optional<Occupancy> OccupancyOf(const v1::KernelSite& site, const Process::Device& device);

}  // namespace gpuprobe::timeline
