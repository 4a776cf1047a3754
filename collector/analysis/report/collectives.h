// Collectives of one operation, communicator and size: calls, bytes, times, bandwidths and waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

// Calls that end after the warm-up; all of them where there are no steps.
struct SteadyCalls {
  uint64_t steps = 0;         // of the rank with most; 0: no steps
  uint64_t compared = 0;      // plans of all ranks, in calls that more than one rank reported
  double plans_per_step = 0;  // of a rank, mean over the ranks that have steps; without steps: in all
  double transfer_ns = 0;     // of a plan: the shortest duration over the ranks
  double transfer_std_ns = 0;
  double wait_ns = 0;  // of a plan, mean over the ranks
};

struct CollectiveReport {
  std::string op;    // of a fused plan of several operations: joined by '+'
  std::string comm;  // 16 hex digits, or "unknown"
  std::string comm_name;
  int comm_ranks = 0;  // 0: not known
  bool fused = false;
  uint32_t calls_per_plan = 1;
  uint64_t size_bytes = 0;  // S of one plan; 0: mixed sizes
  uint64_t calls = 0;
  uint64_t failed_calls = 0;
  uint64_t untimed_calls = 0;
  uint64_t unlaunched_calls = 0;  // of the untimed ones: had nothing to launch
  uint64_t bytes = 0;
  uint32_t element_bytes = 0;  // 0: several kinds
  // How NCCL ran the calls, the most frequent first; empty where it did not say.
  struct RanAs {
    std::string algorithm;  // "RING"
    std::string protocol;   // "LL"
    uint32_t channels = 0;
    uint64_t calls = 0;
  };
  std::vector<RanAs> ran_as;
  model::Summary time_ns;  // of plans
  std::optional<double> algbw;
  std::optional<double> busbw;
  std::optional<double> peak_share;      // of the link's peak: of transfer_busbw, else of busbw
  std::optional<double> transfer_busbw;  // with the shortest duration over the ranks instead of the own one
  std::optional<uint64_t> wait_ns;       // sum over calls; absent when no other rank reported
  std::optional<double> transfer_mean_ns;
  uint64_t compared_plans = 0;
  SteadyCalls steady;
  std::vector<uint32_t> members;  // processes that reported it, by their place in the job
  int heard_ranks = 0;            // of comm_ranks, that record here
  int hosts = 0;                  // of these
};

}  // namespace gpuprobe::analysis
