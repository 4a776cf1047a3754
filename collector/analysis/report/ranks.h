// Everything that the report says about one rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/process_state.h"
#include "collector/analysis/report/collectives.h"
#include "collector/analysis/report/memory.h"
#include "collector/analysis/report/phases.h"
#include "collector/analysis/report/steps.h"
#include "collector/analysis/report/waiting.h"
#include "collector/analysis/report/work.h"
#include "collector/model/statistics/distribution.h"

namespace gpuprobe::analysis {

struct RankReport {
  std::optional<int> rank;
  std::string label;  // "0", or "pid 4711"
  std::string host;
  uint32_t pid = 0;
  std::optional<uint32_t> device;  // the one with most kernels
  std::vector<uint32_t> devices;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t kernel_count = 0;
  uint64_t kernel_busy_ns = 0;   // union
  uint64_t kernel_total_ns = 0;  // sum of durations
  uint64_t graph_kernels = 0;
  model::Summary launch_delay_ns;
  uint64_t memset_count = 0;
  uint64_t memset_bytes = 0;
  uint64_t memset_ns = 0;
  std::map<std::string, CopyReport> copies;    // h2d d2h d2d p2p always, h2h if there were any
  std::map<std::string, SyncReport> syncs;     // by what
  SyncReport blocked;                          // in those calls in which the host waits
  std::map<std::string, MemoryReport> memory;  // device host_pinned managed pool always
  std::vector<DeviceMemoryReport> device_memory;
  std::vector<PytorchMemoryReport> pytorch_memory;
  std::string optimizer;  // "Adam", inferred from the kernels' names; empty: none that is known
  std::vector<PoolReport> pools;
  std::vector<RefusalReport> out_of_memory;  // in order of time
  std::vector<CollectiveReport> collectives;
  std::vector<PhaseReport> phases;
  std::vector<KernelReport> top_kernels;
  std::optional<StepsReport> steps;
  uint64_t last_step_launch_ns = 0;  // first launch of the last complete step; 0: no step was found
  bool cut_off = false;
  bool cut_off_by_collector = false;  // see CutOff
  std::optional<Halt> end;            // how its process ended; absent: the collector did not see it
  std::vector<Stop> stops;            // in which it could not run
  HostLoad host_load;                 // over the whole run
  StepMeans step_means;
  CausedWait caused;
};

}  // namespace gpuprobe::analysis
