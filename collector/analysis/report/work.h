// The work of the devices and the host: kernels by name and by class, copies, synchronisation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/operations/launch_geometry.h"
#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

// Over the complete steps after the warm-up; for all ranks: means over the ranks that have steps.
struct SteadyKernel {
  uint64_t steps = 0;  // of the rank with most
  double calls = 0;    // a step and rank
  double time_ns = 0;  // a step and rank
  double std_ns = 0;   // of a rank's time from step to step
};

struct KernelReport {
  std::string name;          // demangled
  std::string kernel_class;  // kernel_class.h
  double share = 0;          // of all kernels' summed time
  model::Summary time_ns;
  std::optional<SteadyKernel> steady;  // absent without steps
  // The launch geometry that most calls had, and how many different ones there were.
  model::LaunchGeometry geometry;
  uint32_t geometries = 0;
};

struct KernelClassReport {
  std::string name;
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  double share = 0;  // of all kernels' summed time
};

// Copies whose host side was pageable.
struct PageableReport {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;
  double share = 0;                           // of the direction's bytes
  double gbytes_per_s = 0;                    // theirs
  std::optional<double> pinned_gbytes_per_s;  // of the direction's other copies
  // Within steps after the warm-up, per rank: means over the ranks.
  double copies_per_step = 0;
  double ns_per_step = 0;
};

// What the optimizer's kernels must at least read and write, against their time and the device's memory:
// weights and its own state both ways, gradients once. Estimated from what memory holds (memory_holdings.h);
// absent where that is not known.
struct OptimizerTraffic {
  uint64_t bytes_per_step = 0;  // of a rank
  double time_ns_per_step = 0;  // of its kernels, mean over ranks and steps
  double gbytes_per_s = 0;
  std::optional<double> peak_gbytes_per_s;  // of the device's memory
};

struct ComputeReport {
  std::optional<OptimizerTraffic> optimizer_traffic;
  std::vector<KernelClassReport> classes;  // most time first
  uint64_t kernels = 0;
  uint64_t total_ns = 0;
  uint64_t compiled_kernels = 0;  // torch.compile's
  bool fused_optimizer = false;   // one kernel updates many parameters
  // Kernels below model::ProcessModel::kShortKernelNs.
  uint64_t short_kernels = 0;
  uint64_t short_kernel_ns = 0;
  std::map<std::string, PageableReport> pageable;  // h2d, d2h; those that there were
  // Nominal rate of the devices' host interface, if all have the same known one.
  std::optional<double> host_peak_gbytes_per_s;
};

struct CopyReport {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t busy_ns = 0;
  double gbytes_per_s = 0;  // bytes / sum of durations of those with records; 0 without
  uint64_t small = 0;       // of these, counted only (GPUPROBE_MIN_COPY_BYTES)
};

struct SyncReport {
  uint64_t count = 0;
  uint64_t duration_ns = 0;
};

}  // namespace gpuprobe::analysis
