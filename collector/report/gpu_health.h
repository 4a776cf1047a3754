// How well a GPU was while the job ran, as NVML reports it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

// What keeps a clock below what the GPU is capable of; the values of v1::ClockLimit.
enum class ClockLimit {
  kUnknown,
  kPowerCap,
  kThermal,
  kHardwareThermal,
  kPowerBrake,
  kHardwareSlowdown,
  kSyncBoost,
  kClocksSet
};

struct LimitedClock {
  ClockLimit limit = ClockLimit::kUnknown;
  double share = 0;

  static constexpr void Declare(auto& fields) {
    fields("limit", &LimitedClock::limit,
           "`power_cap` (usual under full load), `thermal` (the driver, for the temperature), "
           "`hardware_thermal` (the "
           "board), `power_brake` (the power supply's signal), `hardware_slowdown` (another reason), "
           "`sync_boost` or "
           "`clocks_set` (by somebody)")
        .InSummary();
    fields("share", &LimitedClock::share, "of `busy_s`").InSummary();
  }
};

struct GpuError {
  uint64_t time_ns = 0;
  uint32_t xid = 0;

  static constexpr void Declare(auto& fields) {
    fields("time_ns", &GpuError::time_ns, "when, within a second or so").InSummary();
    fields("xid", &GpuError::xid, "NVIDIA's number of it").InSummary();
  }
};

struct GpuHealth {
  double observed_s = 0;  // 0: nothing is known
  double busy_s = 0;
  double clock_mhz = 0;
  double lowest_clock_mhz = 0;
  double max_clock_mhz = 0;
  double power_w = 0;
  double power_limit_w = 0;
  double temperature_c = 0;
  std::vector<LimitedClock> limited;  // the longest first
  uint64_t ecc_corrected = 0;
  uint64_t ecc_uncorrected = 0;
  bool remap_pending = false;
  bool remap_failed = false;
  uint64_t pcie_replays = 0;
  uint32_t pcie_generation = 0;
  uint32_t pcie_lanes = 0;
  uint32_t max_pcie_generation = 0;
  uint32_t max_pcie_lanes = 0;
  uint64_t error_count = 0;
  std::vector<GpuError> errors;

  double ShareOf(ClockLimit limit) const {
    for (const LimitedClock& each : limited) {
      if (each.limit == limit) return each.share;
    }
    return 0;
  }

  static constexpr void Declare(auto& fields) {
    using H = GpuHealth;
    fields.NullUnless([](const H& health) { return health.observed_s > 0 || health.error_count > 0; });
    fields("observed_s", &H::observed_s, "how long it was observed");
    fields("busy_s", &H::busy_s,
           "how much of that it computed; what follows up to `power_w` is of this time");
    fields("clock_mhz", &H::clock_mhz, "mean clock of its multiprocessors; `null`: not known")
        .NullIfZero()
        .InSummary();
    fields("lowest_clock_mhz", &H::lowest_clock_mhz, "the lowest of one look a second")
        .NullIfZero()
        .InSummary();
    fields(
        "limited", &H::limited,
        "what kept the clock down, by NVML's counters of time, or, where it has none, by one look a second")
        .InSummary();
    fields("power_w", &H::power_w, "mean power").NullIfZero().InSummary();
    fields("max_clock_mhz", &H::max_clock_mhz, "the highest clock that it is capable of")
        .NullIfZero()
        .InSummary();
    fields("power_limit_w", &H::power_limit_w, "power limit that is set").NullIfZero().InSummary();
    fields("temperature_c", &H::temperature_c, "highest temperature of the chip, in degrees Celsius")
        .NullIfZero()
        .InSummary();
    fields("ecc_corrected", &H::ecc_corrected, "errors of its memory that were corrected meanwhile")
        .InSummary();
    fields("ecc_uncorrected", &H::ecc_uncorrected, "and that could not be corrected").InSummary();
    fields("remap_pending", &H::remap_pending, "rows of its memory are to be replaced at the next reset");
    fields("remap_failed", &H::remap_failed, "it has no spare rows left");
    fields("pcie_replays", &H::pcie_replays, "packets that its PCIe link sent again meanwhile");
    fields("pcie_generation", &H::pcie_generation, "the highest generation at which the link ran")
        .NullIfZero()
        .InSummary();
    fields("pcie_lanes", &H::pcie_lanes, "and the most lanes").NullIfZero().InSummary();
    fields("max_pcie_generation", &H::max_pcie_generation, "what GPU and slot are capable of").NullIfZero();
    fields("max_pcie_lanes", &H::max_pcie_lanes, "lanes of both").NullIfZero();
    fields("error_count", &H::error_count, "errors (Xids) that the driver reported of it meanwhile")
        .InSummary();
    fields("errors", &H::errors, "the latest of them, at most 16").InSummary();
  }
};

}  // namespace gpuprobe::analysis
