#include "collector/timeline/occupancy.h"

#include <algorithm>

namespace gpuprobe::timeline {
namespace {

constexpr uint64_t kWarpThreads = 32;
constexpr uint64_t kRegisters = 65536;   // of an SM, all of these devices
constexpr uint64_t kRegisterUnit = 256;  // registers are given to warps in units of so many

// What an SM can hold, from the CUDA programming guide's table of compute capabilities.
struct SmLimits {
  uint32_t major;
  uint32_t minor;
  uint64_t warps;
  uint64_t blocks;
  uint64_t shared_bytes;
  uint64_t reserved_bytes;  // of shared memory, for each block
};

constexpr SmLimits kLimits[] = {
    {6, 0, 64, 32, 64 << 10, 0},      {6, 1, 64, 32, 96 << 10, 0},      {7, 0, 64, 32, 96 << 10, 0},
    {7, 5, 32, 16, 64 << 10, 0},      {8, 0, 64, 32, 164 << 10, 1024},  {8, 6, 48, 16, 100 << 10, 1024},
    {8, 7, 48, 16, 164 << 10, 1024},  {8, 9, 48, 24, 100 << 10, 1024},  {9, 0, 64, 32, 228 << 10, 1024},
    {10, 0, 64, 32, 228 << 10, 1024}, {12, 0, 48, 24, 100 << 10, 1024},
};

const SmLimits* LimitsOf(const Process::Device& device) {
  const auto* found = std::find_if(std::begin(kLimits), std::end(kLimits), [&](const SmLimits& l) {
    return l.major == device.compute_major && l.minor == device.compute_minor;
  });
  return found == std::end(kLimits) ? nullptr : found;
}

}  // namespace

std::optional<Occupancy> OccupancyOf(const v1::KernelSite& site, const Process::Device& device) {
  const SmLimits* limits = LimitsOf(device);
  const uint64_t threads = uint64_t{site.block_x()} * site.block_y() * site.block_z();
  const uint64_t blocks = uint64_t{site.grid_x()} * site.grid_y() * site.grid_z();
  if (limits == nullptr || device.multiprocessors == 0 || threads == 0 || blocks == 0) return std::nullopt;
  const uint64_t warps = (threads + kWarpThreads - 1) / kWarpThreads;
  if (warps > limits->warps) return std::nullopt;
  uint64_t fit = std::min(limits->blocks, limits->warps / warps);
  if (site.registers_per_thread() > 0) {
    const uint64_t per_warp = (uint64_t{site.registers_per_thread()} * kWarpThreads + kRegisterUnit - 1) /
                              kRegisterUnit * kRegisterUnit;
    fit = std::min(fit, kRegisters / per_warp / warps);
  }
  const uint64_t shared =
      uint64_t{site.static_shared_bytes()} + site.dynamic_shared_bytes() + limits->reserved_bytes;
  if (shared > 0) fit = std::min(fit, limits->shared_bytes / shared);
  Occupancy occupancy;
  occupancy.blocks_per_sm = static_cast<double>(blocks) / device.multiprocessors;
  occupancy.warps_per_sm = occupancy.blocks_per_sm * static_cast<double>(warps);
  const double resident = std::min(static_cast<double>(fit), occupancy.blocks_per_sm);
  occupancy.share = resident * static_cast<double>(warps) / static_cast<double>(limits->warps);
  return occupancy;
}

}  // namespace gpuprobe::timeline
