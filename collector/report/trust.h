// How far to trust the numbers: what was lost, left out or cut off, and what profiling cost.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/words.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::report {

template <>
struct EnumWords<v1::DetailLevel> {
  static Words Of() {
    return {{v1::DETAIL_LEVEL_FULL, "full"},
            {v1::DETAIL_LEVEL_GRAPHS, "graphs"},
            {v1::DETAIL_LEVEL_CALLBACKS, "ended"},
            {v1::DETAIL_LEVEL_OFF, "off"}};
  }
};

}  // namespace gpuprobe::report

namespace gpuprobe::analysis {

// Fractions are of the processes' time, summed over those that measured.
struct OwnCost {
  std::optional<double> own_fraction;
  uint32_t own_sampling = 0;
  std::optional<double> launch_fraction;
  uint64_t launches = 0;
  std::optional<double> expected_least;
  std::optional<double> expected_most;
  // The part of CUDA graphs, which are recorded node by node.
  uint64_t graph_nodes = 0;
  double graph_nodes_least = 0;
  double graph_nodes_most = 0;

  struct Overhead {
    std::string what;
    uint64_t count = 0;
    uint64_t duration_ns = 0;

    static constexpr void Declare(auto& fields) {
      fields("what", &Overhead::what,
             "CUPTI: `buffer_flush`, `buffer_request`, `instrumentation`, `resource`, `managed_memory`. The "
             "driver: `compiler`, `module_loading`, `function_loading` (a kernel at its first launch), "
             "`command_buffer_full` (launches wait for room in the device's queue)");
      fields("count", &Overhead::count, "how often");
      fields("total_ns", &Overhead::duration_ns, "time that it took");
    }
  };
  std::vector<Overhead> overheads;
  std::optional<double> cupti_overhead_fraction;
  // Of the process that held most; 0: no process says so.
  uint64_t memory_peak_bytes = 0;
  uint64_t memory_limit_bytes = 0;

  static constexpr void Declare(auto& fields) {
    using C = OwnCost;
    fields("own_fraction", &C::own_fraction,
           "time of our own code on the program's threads, estimated from one event in `own_sampling`. What "
           "is above 10 us in a timed event counts once: its thread lost the processor");
    fields("own_sampling", &C::own_sampling, "one event in so many was timed");
    fields("launches", &C::launches, "launches of kernels");
    fields("launch_fraction", &C::launch_fraction,
           "their time from entry to exit, at most 20 us each; estimated from one launch in 16. This is no "
           "bound of CUPTI's part, because CUPTI works before the entry and after the exit");
    fields("expected_cupti_least", &C::expected_least,
           "estimated: what CUPTI adds if each launch and each node of a CUDA graph costs what it did where "
           "that was measured, 1 us a launch and 0.1 us a node (H100, CUPTI 13.0, "
           "[real-hardware.md](real-hardware.md))");
    fields("expected_cupti_most", &C::expected_most, "the same, with 3 us a launch and 1.4 us a node");
    fields("cupti_overhead_fraction", &C::cupti_overhead_fraction,
           "CUPTI's part of `overheads`. Much of it is on threads of its own and ours, and what is on the "
           "program's threads is in the estimate, too, so it is not added to `overhead_fraction`. `null` if "
           "there is none");
    fields("overheads", &C::overheads,
           "what CUPTI itself reports that it or the driver took time for, on any thread, the longest first. "
           "Empty if no device work is recorded, if CUPTI has several subscribers (13.4 and newer with "
           "driver 610 and newer: the headers do not say whose the details of a record are then), and from "
           "the moment that another profiler records overheads");
    fields("memory_peak_bytes", &C::memory_peak_bytes,
           "the most memory that the library has held in one process, with its code; 0: not known");
    fields("memory_limit_bytes", &C::memory_limit_bytes, "its limit there, `GPUPROBE_MEMORY_MIB`");
    fields.Unwritten(&C::graph_nodes, &C::graph_nodes_least, &C::graph_nodes_most);
  }
};

struct CutOff {
  enum class By { kProcess, kCollector };
  std::string who;  // "rank 3 (pid 4711)"
  uint64_t last_data_ns = 0;
  By by = By::kProcess;

  static constexpr void Declare(auto& fields) {
    fields("who", &CutOff::who, "the process");
    fields("last_data_ns", &CutOff::last_data_ns, "when its last data came");
    fields("by", &CutOff::by,
           "`process` if it exited uncleanly, `collector` if the collector ended before it, which may have "
           "gone on");
  }
};

// Recording began in a process that ran already.
struct Attached {
  std::string who;
  uint64_t ran_ns = 0;
  uint64_t earlier_allocations = 0;
  uint64_t earlier_communicators = 0;

  static constexpr void Declare(auto& fields) {
    using A = Attached;
    fields("who", &A::who, "the process");
    fields("ran_ns", &A::ran_ns, "how long it had run by then");
    fields("earlier_allocations", &A::earlier_allocations,
           "releases of memory that it had allocated before: not losses");
    fields("earlier_communicators", &A::earlier_communicators,
           "NCCL calls whose communicator is not known, because it was made before: not losses");
  }
};

struct CuptiDefect {
  std::string defect;
  std::string left_out;
  std::string source;

  static constexpr void Declare(auto& fields) {
    fields("defect", &CuptiDefect::defect, "what this CUPTI is known to do wrong");
    fields("left_out", &CuptiDefect::left_out, "what the probe left out because of it");
    fields("source", &CuptiDefect::source, "the source of that knowledge");
  }
};

struct Trust {
  enum class TimingSource { kNone, kCuptiActivity, kMixed };
  uint64_t records = 0;
  std::map<std::string, uint64_t> lost;
  uint64_t lost_total = 0;
  std::optional<double> coverage;
  TimingSource timing_source = TimingSource::kNone;
  OwnCost cost;
  uint64_t host_time_error_ns = 0;
  int64_t clock_step_ns = 0;
  int64_t device_clock_ahead_ns = 0;
  uint64_t batches_missing = 0;
  uint64_t recorded_elsewhere = 0;
  uint64_t device_records_unattributed = 0;
  uint64_t device_records_late = 0;
  uint64_t invalid_times = 0;
  uint64_t range_pops_without_push = 0;
  uint64_t range_ends_without_start = 0;
  uint64_t ranges_unclosed = 0;
  uint64_t misnamed_kernels = 0;
  uint64_t other_names = 0;
  uint64_t unrecorded_frames = 0;
  uint64_t detail_since_ns = 0;
  uint64_t ranks_without_detail = 0;
  uint64_t outside_window = 0;
  std::map<std::string, uint64_t> unknown_kinds;
  std::map<std::string, uint64_t> unknown_functions;
  uint64_t other_unknown_functions = 0;
  v1::DetailLevel detail_level = v1::DETAIL_LEVEL_FULL;
  uint64_t detail_reductions = 0;
  uint64_t reduced_ns = 0;
  bool cupti_taken = false;  // all along, by another profiler, in some process
  uint64_t yields = 0;
  uint64_t yielded_ns = 0;
  std::vector<CuptiDefect> cupti_defects;
  std::vector<CutOff> cut_off;
  std::vector<Attached> attached;
  std::vector<std::string> exit_incomplete;
  std::vector<std::string> damaged_logs;

  static constexpr void Declare(auto& fields) {
    using T = Trust;
    fields("records", &T::records, "records of every kind that were received");
    fields("lost", &T::lost,
           "records that were not, by reason; the reasons are those of `LossReason` in "
           "`proto/gpuprobe/v1/wire.proto`; empty if nothing was lost");
    fields("coverage", &T::coverage, "records / (records + lost + outside_window)");
    fields("outside_window", &T::outside_window,
           "records left out because of `GPUPROBE_START_AFTER_S`, `GPUPROBE_STOP_AFTER_S`, "
           "`GPUPROBE_START_STEP`, `GPUPROBE_STOP_STEP` or `GPUPROBE_EVERY_STEPS`, or after the end of "
           "recording that held `GPUPROBE_OVERHEAD_BUDGET`; allocations are never left out");
    fields("unknown_kinds", &T::unknown_kinds,
           "of the lost records with reason `unknown_record`: how many of which kinds, by CUPTI's name "
           "(`unreadable`: CUPTI could not read them either)");
    fields("unknown_functions", &T::unknown_functions,
           "NCCL functions that a program's objects import and the probe does not know, with the number of "
           "objects: calls of them are not seen");
    fields("other_unknown_functions", &T::other_unknown_functions,
           "how many further ones there are at least, whose names are not kept, on the process with most");
    fields.Group("detail", "how much was recorded, to hold `GPUPROBE_OVERHEAD_BUDGET`", [](auto& group) {
      group("level", &T::detail_level,
            "at the end, on the process with least: `full`; `graphs`: CUDA graphs as a whole; "
            "`ended`: recording had ended, and what was left out was counted; `off`: not even "
            "that");
      group("reductions", &T::detail_reductions, "how often less was recorded from then on");
      group("reduced_ns", &T::reduced_ns,
            "since when, before the end, on the process where that was longest");
    });
    fields.Group("yielded", "processes in which another profiler had CUPTI before the probe and then left",
                 [](auto& group) {
                   group("times", &T::yields, "how often");
                   group("ns", &T::yielded_ns, "the longest time without device records for that reason");
                 });
    fields("cupti_defects", &T::cupti_defects,
           "known defects of this CUPTI; only what matters for what was recorded");
    fields("timing_source", &T::timing_source, "`cupti_activity`, `none`, or `mixed` if ranks differ");
    fields.Computed(
        "overhead_fraction", [](const T& t) { return t.cost.own_fraction; },
        "what is measured of the cost, `cost.own_fraction`. It is a lower bound, because it leaves out what "
        "CUPTI takes");
    fields("cost", &T::cost, "what profiling cost. All fractions are of the processes' wall time");
    fields("host_time_error_ns", &T::host_time_error_ns,
           "largest error of the times of launches, calls and ranges against CLOCK_REALTIME, over all "
           "processes; 0: they are the clock's own");
    fields("clock_step_ns", &T::clock_step_ns,
           "largest step of CLOCK_REALTIME against CLOCK_MONOTONIC between two batches of a process");
    fields(
        "device_clock_ahead_ns", &T::device_clock_ahead_ns,
        "by how much CUPTI's clock was ahead of the system's (below 0: behind), the largest; 0: they agree. "
        "Times in the report are on the system's clock; `gpuprobe export` and `query` give the records' own");
    fields("batches_missing", &T::batches_missing,
           "gaps in the batches' sequence; their records are in `lost`");
    fields("recorded_elsewhere", &T::recorded_elsewhere,
           "earlier records of these processes in the run of another collector, which recorded them until it "
           "died");
    fields("device_records_unattributed", &T::device_records_unattributed,
           "GPU records whose launch was never seen: in all totals, in no phase");
    fields("device_records_late", &T::device_records_late,
           "GPU records that came after their launch had been given up: in all totals. The steps around them "
           "were computed without them, and `steps.confidence` is lower by their share");
    fields("invalid_times", &T::invalid_times, "records that ended before they began, left out");
    fields("range_pops_without_push", &T::range_pops_without_push,
           "NVTX pops without a push: mistakes of the program, not losses");
    fields("range_ends_without_start", &T::range_ends_without_start, "the same, of ends without a start");
    fields("ranges_unclosed", &T::ranges_unclosed, "the same, of ranges that were never closed");
    fields("misnamed_kernels", &T::misnamed_kernels,
           "kernels whose names in CUPTI's records are wrong, by what launched them: NCCL's with another "
           "name, and others with a name of NCCL's. They count as what they are, in steps, classes and "
           "collectives; `top_kernels[]` has them as `NCCL kernel (recorded as ...)` and `unknown kernel "
           "(recorded as ...)`. Ranks of a process that has any are not compared kernel by kernel");
    fields("other_names", &T::other_names,
           "definitions of names (kernels, ranges, texts) beyond 65,536 distinct ones, or 8 MiB of them, in "
           "a process. Those with the same text but for their numbers share one name, with `#` for each "
           "number; beyond 4,096 more such names they are `other names`. A name that comes again after "
           "65,536 others counts again");
    fields("unrecorded_frames", &T::unrecorded_frames,
           "received and counted, but not written to the run directory because the disk refused");
    fields("detail_since_ns", &T::detail_since_ns,
           "single records from before this time were dropped (`--keep`) after they had been counted; "
           "`null`: all are there")
        .NullIfZero();
    fields("ranks_without_detail", &T::ranks_without_detail,
           "ranks of which only steps and collectives are known: their kernels, memory and hosts are in no "
           "figure of this report");
    fields("cut_off", &T::cut_off, "processes whose later records are missing");
    fields("attached", &T::attached,
           "processes that ran already when recording began (`gpuprobe attach`): nothing is known of what "
           "they did before");
    fields("exit_incomplete", &T::exit_incomplete, "processes whose last flush did not finish");
    fields("damaged_logs", &T::damaged_logs, "logs that could not be read to their end");
    fields.Unwritten(&T::lost_total, &T::cupti_taken);
  }
};

}  // namespace gpuprobe::analysis
