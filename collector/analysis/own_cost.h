// The cost of profiling to the program: our code on its threads, and CUPTI's share of its launches.
//
// Separate from the trust figures because it adds up costs measured in three ways: our code, and launches
// from entry to exit, by timing a sample of them; and CUPTI's part of a launch by comparison with moments in
// which kernels were not recorded, and by calling a function that does nothing (injector/core/launch_cost.h,
// injector/capture/cupti/callback_cost.h). A launch's time from entry to exit does not bound CUPTI's part,
// which works before entry and after exit. CUPTI's work on threads of its own is not included; what CUPTI
// reports of it is listed apart (overheads). Stateless.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

inline constexpr double kLaunchLeastNs = 1'000;
inline constexpr double kLaunchMostNs = 3'000;
inline constexpr double kGraphNodeLeastNs = 100;  // where kernels are long enough to hide it
inline constexpr double kGraphNodeMostNs = 1'400;

// Fractions are of the processes' time, summed over those that measured.
struct OwnCost {
  std::optional<double> own_fraction;     // our code on the program's threads
  uint32_t own_sampling = 0;              // one event in this many was timed
  std::optional<double> launch_fraction;  // launches of kernels, from entry to exit
  uint64_t launches = 0;
  // Where it was compared: means over the processes that did; the others are assumed to be like them.
  std::optional<double> cupti_fraction;
  double with_recording_ns = 0;  // from one launch to the next
  double without_recording_ns = 0;
  double callbacks_ns = 0;           // CUPTI's calling us, a launch
  double cupti_error = 0;            // of cupti_fraction: twice its standard error
  int compared = 0;                  // processes
  uint64_t unrecorded_launches = 0;  // kernels without GPU times, for the comparison
  // An estimate of what CUPTI adds to this job: its launches and graph nodes, if each costs what it does on
  // the one machine where that was measured (an H100 with CUPTI 13.0, 16 processors; docs/real-hardware.md):
  // from and to.
  std::optional<double> expected_least;
  std::optional<double> expected_most;
  // The part of CUDA graphs, which are recorded node by node.
  uint64_t graph_nodes = 0;
  double graph_nodes_least = 0;
  double graph_nodes_most = 0;

  // What CUPTI itself says that it and the driver took time for, on any thread; the longest first.
  struct Overhead {
    v1::OverheadKind what = v1::OVERHEAD_KIND_UNKNOWN;
    uint64_t count = 0;
    uint64_t duration_ns = 0;
  };
  std::vector<Overhead> overheads;
  // The part that is CUPTI's, and so would not be there without profiling.
  std::optional<double> cupti_overhead_fraction;

  // What is known of it.
  std::optional<double> Total() const {
    if (!own_fraction.has_value() && !cupti_fraction.has_value()) return std::nullopt;
    return own_fraction.value_or(0) + cupti_fraction.value_or(0);
  }
};

// `durations_ns`: those of the job's processes, in order.
OwnCost OwnCostOf(const model::JobModel& job, std::span<const uint64_t> durations_ns);

}  // namespace gpuprobe::analysis
