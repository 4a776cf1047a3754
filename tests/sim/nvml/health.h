// How well a simulated GPU is: what NVML reports of its clocks, power, temperature and errors.
//
// A healthy H100 under load, unless the file GPUSIM_HEALTH says otherwise. It has lines "DEVICE NAME VALUE",
// such as "3 sm_clock 1110", with the names below; it is read at each call, so that a test can change it
// while a job runs. A line that means nothing ends the process with status 64.
#pragma once

#include <cstdint>
#include <vector>

namespace gpusim {

struct Health {
  unsigned sm_clock = 1980;  // MHz
  unsigned max_sm_clock = 1980;
  unsigned power = 350'000;  // mW
  unsigned power_limit = 700'000;
  unsigned temperature = 60;  // degrees Celsius
  unsigned utilisation = 100;
  uint64_t reasons = 0;      // nvmlClocksEventReasons
  double power_share = 0;    // of the time in which the power limit, or the temperature, limits clocks: what
  double thermal_share = 0;  // NVML's counters of nanoseconds grow by
  uint64_t ecc_corrected = 0;
  uint64_t ecc_uncorrected = 0;
  unsigned pcie_generation = 5;
  unsigned pcie_lanes = 16;
  unsigned max_pcie_generation = 5;
  unsigned max_pcie_lanes = 16;
  unsigned pcie_replays = 0;
  unsigned remap_pending = 0;
  unsigned remap_failed = 0;
  std::vector<unsigned> processes;  // "process PID": a line for each that has a context
  std::vector<unsigned> xids;       // a line for each, in order
};

Health HealthOf(unsigned device);

// Nanoseconds of a counter that grows by this share of the time.
uint64_t CounterOf(double share);

}  // namespace gpusim
