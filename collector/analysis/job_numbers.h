// The counts and levels of a job that a monitoring system scrapes while it runs: sums since the start, and
// levels of now. Linear in the ranks, and bounded: names of kernels and communicators stay out of it.
//
// Separate from the report, which is settled, and from the live status, which covers the last moments: a
// scraper makes rates itself, from sums that only grow. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// Upper bounds of the histogram of step times: 1 ms to 60 s, and beyond.
inline constexpr std::array<uint64_t, 15> kStepBoundsNs = {
    1'000'000,     2'500'000,     5'000'000,      10'000'000,     25'000'000,
    50'000'000,    100'000'000,   250'000'000,    500'000'000,    1'000'000'000,
    2'500'000'000, 5'000'000'000, 10'000'000'000, 30'000'000'000, 60'000'000'000};

struct DeviceName {
  uint32_t device = 0;
  std::string uuid;  // "GPU-...", as nvidia-smi and dcgm-exporter say it
};

struct DeviceMemoryNumbers {
  uint32_t device = 0;
  uint64_t capacity_bytes = 0;  // 0: not known
  uint64_t live_bytes = 0;
  uint64_t high_water_bytes = 0;
};

// As NVML says; 0: not known.
struct GpuHealthNumbers {
  uint32_t device = 0;
  uint64_t clock_mhz = 0;
  double power_w = 0;
  uint64_t temperature_c = 0;
  std::map<std::string, uint64_t> limited_ns;  // "hardware_thermal": how long that kept the clock down
  uint64_t errors = 0;
};

struct CopyNumbers {
  std::string direction;  // "h2d"
  uint64_t copies = 0;
  uint64_t bytes = 0;
};

struct RankNumbers {
  std::string rank;  // "5", or "pid 4711"
  std::string host;
  bool connected = false;
  bool halted = false;  // alive, and cannot run
  uint64_t records = 0;
  uint64_t kernels = 0;
  uint64_t kernel_ns = 0;
  std::vector<CopyNumbers> copies;
  uint64_t steps = 0;  // since the start
  // Counts the steps in the statistics: complete ones, after the warm-up.
  uint64_t measured_steps = 0;
  uint64_t step_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t exposed_comm_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t idle_ns = 0;
  uint64_t caused_wait_ns = 0;  // that the mean of the others waited for it
  uint64_t waited_ns = 0;
  std::vector<DeviceName> devices;  // on which it computes
  std::vector<DeviceMemoryNumbers> memory;
  std::vector<GpuHealthNumbers> gpus;  // on which it computes, if NVML was asked
  uint64_t pinned_bytes = 0;
  uint64_t probe_host_ns = 0;  // on the program's threads, estimated
  uint64_t probe_cpu_ns = 0;   // of the probe's own thread
};

struct CollectiveNumbers {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t time_ns = 0;
};

struct JobNumbers {
  // Unless asked for more: further ranks are in the sums, and have no series of their own.
  static constexpr size_t kMostRanks = 2048;

  std::vector<RankNumbers> ranks;  // by rank
  size_t heard = 0;                // all
  int world_size = 0;              // 0: not known
  uint64_t steps = 0;              // that every rank has seen
  // All ranks' steps, as the histogram has them.
  std::array<uint64_t, kStepBoundsNs.size()> step_counts{};
  uint64_t step_count = 0;
  uint64_t step_ns = 0;
  std::map<std::string, CollectiveNumbers> collectives;  // by NCCL's operation, or "several"
  std::map<std::string, uint64_t> lost;                  // by reason, those that there are
  uint64_t records = 0;
  uint64_t wire_bytes = 0;
};

JobNumbers NumbersOf(const model::JobModel& job, uint64_t now_ns, size_t most_ranks = JobNumbers::kMostRanks);

}  // namespace gpuprobe::analysis
