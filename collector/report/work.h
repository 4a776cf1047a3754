// The work of the devices and the host: kernels by name and by class, copies, synchronisation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/operations/launch_geometry.h"
#include "collector/model/statistics/distribution.h"
#include "collector/report/words.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::analysis {

enum class KernelClass : uint8_t {
  kGemm,
  kConvolution,
  kAttention,
  kNormalisation,
  kElementwise,
  kReduction,
  kOptimizer,
  kCopy,
  kCollective,
  kOther,
};

// Over the complete steps after the warm-up; for all ranks: means over the ranks that have steps.
struct SteadyKernel {
  uint64_t steps = 0;
  double calls = 0;
  double time_ns = 0;
  double std_ns = 0;

  static constexpr void Declare(auto& fields) {
    fields("steps", &SteadyKernel::steps, "of the rank with most");
    fields("calls_per_step", &SteadyKernel::calls, "of a rank");
    fields("time_ns_per_step", &SteadyKernel::time_ns, "of a rank");
    fields("std_ns", &SteadyKernel::std_ns, "standard deviation of a rank's time from step to step");
  }
};

struct KernelReport {
  std::string name;
  KernelClass kernel_class = KernelClass::kOther;  // kernel_class.h
  double share = 0;
  model::Summary time_ns;
  std::optional<SteadyKernel> steady;
  model::LaunchGeometry geometry;
  uint32_t geometries = 0;

  static constexpr void Declare(auto& fields) {
    fields("name", &KernelReport::name, "demangled");
    fields("class", &KernelReport::kernel_class, "as in `compute.classes`");
    fields("share", &KernelReport::share, "of all kernels' summed time");
    fields("time_ns", &KernelReport::time_ns, "of a call");
    fields("steady", &KernelReport::steady,
           "per rank and step after the warm-up (over all ranks: the mean of the ranks that have steps); "
           "`null` without steps, and for the kernels of collectives, which are in `collectives[].steady`");
    fields(
        "grid", [](auto& k) -> auto& { return k.geometry.grid; }, "the grid that most calls had");
    fields(
        "block", [](auto& k) -> auto& { return k.geometry.block; }, "the block that most calls had");
    fields("geometries", &KernelReport::geometries, "different grids and blocks");
    fields.Unwritten(&KernelReport::geometry);
  }
};

struct KernelClassReport {
  KernelClass kernel_class = KernelClass::kOther;
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  double share = 0;

  static constexpr void Declare(auto& fields) {
    fields("class", &KernelClassReport::kernel_class,
           "inferred from the kernel's name (`collective`: also from what launched it): `gemm convolution "
           "attention normalisation elementwise reduction optimizer copy collective other`");
    fields("calls", &KernelClassReport::calls, "kernels of the class");
    fields("total_ns", &KernelClassReport::total_ns, "sum of their times");
    fields("share", &KernelClassReport::share, "of all kernels' summed time");
  }
};

// Copies whose host side was pageable.
struct PageableReport {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t duration_ns = 0;
  double share = 0;
  double gbytes_per_s = 0;
  std::optional<double> pinned_gbytes_per_s;
  double copies_per_step = 0;
  double ns_per_step = 0;

  static constexpr void Declare(auto& fields) {
    fields("count", &PageableReport::count, "copies");
    fields("bytes", &PageableReport::bytes, "what they copied");
    fields("duration_ns", &PageableReport::duration_ns, "sum of their durations");
    fields("share", &PageableReport::share, "of the direction's bytes");
    fields("gbytes_per_s", &PageableReport::gbytes_per_s, "their rate");
    fields("pinned_gbytes_per_s", &PageableReport::pinned_gbytes_per_s,
           "rate of the direction's other copies; `null` without any");
    fields("copies_per_step", &PageableReport::copies_per_step,
           "a rank's mean within steps after the warm-up, so a model moved to the device before the first "
           "step is not in it");
    fields("ns_per_step", &PageableReport::ns_per_step, "the same, of their durations");
  }
};

// What the optimizer's kernels must at least read and write, against their time and the device's memory:
// weights and its own state both ways, gradients once. Estimated from what memory holds (memory_holdings.h);
// absent where that is not known.
struct OptimizerTraffic {
  uint64_t bytes_per_step = 0;
  double time_ns_per_step = 0;
  double gbytes_per_s = 0;
  std::optional<double> peak_gbytes_per_s;

  static constexpr void Declare(auto& fields) {
    fields("bytes_per_step", &OptimizerTraffic::bytes_per_step,
           "what the optimizer's kernels must at least read and write in a step of a rank: weights and state "
           "both ways, gradients once; estimated from what memory holds");
    fields("time_ns_per_step", &OptimizerTraffic::time_ns_per_step, "their time, mean over ranks and steps");
    fields("gbytes_per_s", &OptimizerTraffic::gbytes_per_s, "the one over the other");
    fields("peak_gbytes_per_s", &OptimizerTraffic::peak_gbytes_per_s,
           "bandwidth of the device's memory; near it they are memory-bound");
  }
};

struct ComputeReport {
  std::optional<OptimizerTraffic> optimizer_traffic;
  std::vector<KernelClassReport> classes;
  uint64_t kernels = 0;
  uint64_t total_ns = 0;
  // Without NCCL's, over the complete steps after the warm-up: a step and rank, means over the ranks.
  double calls_per_step = 0;
  double ns_per_step = 0;
  uint64_t compiled_kernels = 0;  // torch.compile's
  bool fused_optimizer = false;   // one kernel updates many parameters
  // CUDA graphs that were launched, as far as they are kept apart, and how often.
  uint64_t graphs = 0;
  uint64_t graph_launches = 0;
  // Next to nothing but NCCL's kernels: a benchmark of it, whose calls are no part of a model.
  bool only_communicates = false;
  uint64_t short_below_ns = 0;
  uint64_t short_kernels = 0;
  uint64_t short_kernel_ns = 0;
  report::WordMap<v1::CopyDirection, PageableReport> pageable;
  std::optional<double> host_peak_gbytes_per_s;

  static constexpr void Declare(auto& fields) {
    fields("kernels", &ComputeReport::kernels, "kernels of all ranks");
    fields("total_ns", &ComputeReport::total_ns, "sum of their times");
    fields("classes", &ComputeReport::classes, "by class, most time first");
    fields.Group("short_kernels", "kernels that are shorter than a launch takes", [](auto& group) {
      group("below_ns", &ComputeReport::short_below_ns, "what is shorter counts as short");
      group("count", &ComputeReport::short_kernels, "how many");
      group("total_ns", &ComputeReport::short_kernel_ns, "sum of their times");
    });
    fields("optimizer_traffic", &ComputeReport::optimizer_traffic,
           "memory traffic of the optimizer; `null` if weights, gradients or state are not known");
    fields("pageable_copies", &ComputeReport::pageable,
           "copies whose host side was not pinned, by direction: `h2d`, `d2h`, if there were any");
    fields("host_peak_gbytes_per_s", &ComputeReport::host_peak_gbytes_per_s,
           "nominal peak between host and device, one direction; `null` if not known, or not the same for "
           "all devices");
    fields.Unwritten(&ComputeReport::calls_per_step, &ComputeReport::ns_per_step,
                     &ComputeReport::compiled_kernels, &ComputeReport::fused_optimizer,
                     &ComputeReport::graphs, &ComputeReport::graph_launches,
                     &ComputeReport::only_communicates);
  }
};

// Calls of 20 us or more into a function of the driver, over all ranks.
struct DriverCallReport {
  // Before a rank's first step after the warm-up.
  struct Startup {
    uint64_t calls = 0;
    uint64_t total_ns = 0;

    static constexpr void Declare(auto& fields) {
      fields("calls", &Startup::calls, "how many");
      fields("total_ns", &Startup::total_ns, "sum of their lengths");
    }
  };
  std::string function;
  uint64_t calls = 0;
  uint64_t total_ns = 0;
  uint64_t failed = 0;
  uint64_t nccl_ns = 0;
  uint64_t longest_ns = 0;
  uint64_t longest_start_ns = 0;
  std::optional<Startup> startup;

  static constexpr void Declare(auto& fields) {
    using R = DriverCallReport;
    fields("function", &R::function, "the driver's name, such as `cuModuleLoadData`");
    fields("calls", &R::calls, "calls that took 20 us or more; shorter ones are not known");
    fields("total_ns", &R::total_ns, "sum of their lengths");
    fields("failed", &R::failed, "calls that returned an error");
    fields("nccl_ns", &R::nccl_ns, "the part of `total_ns` inside calls into NCCL");
    fields("longest_ns", &R::longest_ns, "the longest call");
    fields("longest_start_ns", &R::longest_start_ns, "when it began");
    fields("startup", &R::startup,
           "the part before the first step after the warm-up: start, compilation, first allocations; `null` "
           "without such steps");
  }
};

struct CopyReport {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t busy_ns = 0;
  double gbytes_per_s = 0;
  uint64_t small = 0;

  static constexpr void Declare(auto& fields) {
    fields("count", &CopyReport::count, "copies");
    fields("bytes", &CopyReport::bytes, "what they copied");
    fields("busy_ns", &CopyReport::busy_ns, "length of their union");
    fields("gbytes_per_s", &CopyReport::gbytes_per_s, "bytes over the sum of durations");
    fields("small", &CopyReport::small,
           "copies below `GPUPROBE_MIN_COPY_BYTES`; they are counted, their durations are added to "
           "`busy_ns`, and they are not in `gbytes_per_s`");
  }
};

struct SyncReport {
  uint64_t count = 0;
  uint64_t duration_ns = 0;

  static constexpr void Declare(auto& fields) {
    fields("count", &SyncReport::count, "calls");
    fields("duration_ns", &SyncReport::duration_ns, "sum of their lengths");
  }
};

}  // namespace gpuprobe::analysis
