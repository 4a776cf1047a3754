// How far to trust the numbers: what was lost, left out or cut off, and what profiling cost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/own_cost.h"
#include "gpuprobe/v1/wire.pb.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::analysis {

struct CutOff {
  std::string who;  // "rank 3 (pid 4711)"
  uint64_t last_data_ns = 0;
  // The collector ended first, and the process may have gone on; else the process ended without notice.
  bool by_collector = false;
};

struct Trust {
  uint64_t records = 0;
  std::map<std::string, uint64_t> lost;  // by reason; only nonzero counts
  uint64_t lost_total = 0;
  std::optional<double> coverage;  // records / (records + lost + outside_window + cost.unrecorded_launches)
  std::string timing_source;       // "cupti_activity", "none", "mixed"
  OwnCost cost;
  uint64_t host_time_error_ns =
      0;                      // bound of the error of launch, call and range times; 0: the system's clock
  int64_t clock_step_ns = 0;  // largest, over all processes
  int64_t device_clock_ahead_ns = 0;  // CUPTI's clock before the system's; largest, over all processes
  uint64_t batches_missing = 0;
  uint64_t recorded_elsewhere = 0;  // earlier records of processes that another collector recorded first
  uint64_t device_records_unattributed = 0;  // their launch was not seen: in totals, in no phase
  uint64_t device_records_late = 0;  // came after their launch was given up: steps were computed without them
  uint64_t invalid_times = 0;
  uint64_t range_pops_without_push = 0;  // annotation calls without a partner: the program's mistakes
  uint64_t range_ends_without_start = 0;
  uint64_t ranges_unclosed = 0;
  uint64_t unrecorded_frames = 0;  // received and counted, but not written: the disk refused
  uint64_t detail_since_ns =
      0;  // records before it were dropped to save space, after they were counted; 0: none
  uint64_t outside_window = 0;                    // left out on request; part of coverage
  std::map<std::string, uint64_t> unknown_kinds;  // of records that the probe does not know
  // Functions of NCCL's that programs import and the probe does not know; by how many objects.
  std::map<std::string, uint64_t> unknown_functions;
  uint64_t other_unknown_functions = 0;                  // further ones; the most, of all processes
  v1::DetailLevel detail_level = v1::DETAIL_LEVEL_FULL;  // the least, of all processes, at the end
  uint64_t detail_reductions = 0;                        // to hold the overhead budget; summed
  uint64_t reduced_ns = 0;                               // the longest, of all processes
  bool cupti_taken = false;                              // all along, by another profiler, in some process
  uint64_t yields = 0;                                   // by another profiler that was first; summed
  uint64_t yielded_ns = 0;                               // the longest, of all processes
  std::vector<const cupti::KnownDefect*> cupti_defects;  // of the CUPTI in use, that left something out
  std::vector<CutOff> cut_off;
  std::vector<std::string> exit_incomplete;  // processes whose last flush did not finish
  std::vector<std::string> damaged_logs;
};

}  // namespace gpuprobe::analysis
