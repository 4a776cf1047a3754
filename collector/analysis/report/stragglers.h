// Ranks that the others wait for: how much, how often, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "collector/analysis/process_state.h"
#include "collector/analysis/report/waiting.h"

namespace gpuprobe::analysis {

// A rank that others wait for because its kernels run slower than the same kernels elsewhere (slow_ranks.h).
struct Straggler {
  int rank = 0;
  std::string host;
  std::optional<uint32_t> device;
  double slowdown = 0;  // time of its kernels over that of the same launches at the other ranks' pace
  double extra_ns = 0;  // the difference, over the whole run
  std::string kernel;   // the one that costs most of it, demangled
  double kernel_mean_ns = 0;
  double kernel_elsewhere_ns = 0;  // median over the ranks of their means
  double wait_ns = 0;              // its own in collectives, over the whole run
  double others_wait_mean_ns = 0;  // of each other rank
  enum class Cause { kSlowKernels, kMoreWork, kLateLaunch, kLateInput, kSlowCopies, kUnknown };
  Cause cause = Cause::kSlowKernels;
  double cause_ns_per_step = 0;  // by which that part of its step exceeds the other ranks' median
  double work_ratio = 1;         // threads that it launched over the other ranks' median
  CausedWait caused;
  // How much it lengthens a step: the exposed part of the others' waiting, at most what it caused.
  double lost_ns_per_step = 0;
  double throughput_loss = 0;  // 1 - step without it / step with it
  bool persistent = true;      // in most steps, or since `since_step`
  // Steps in which it was late, of those that were compared; 0 where that is not known by step. Where it is
  // not persistent, and that was mostly in one stretch: between which steps.
  uint64_t late_steps = 0;
  uint64_t compared_steps = 0;
  std::optional<std::pair<uint64_t, uint64_t>> stretch = std::nullopt;
  std::optional<uint64_t> since_step = std::nullopt;  // it was not late before, and is since, to the end
  HostLoad load;                                      // over the whole run
  HostLoad usual_load;                                // each value the median of the other ranks'
  bool slow_stage = false;  // a pipeline's: its neighbours wait for it in sends and receives
};

}  // namespace gpuprobe::analysis
