// The report as numbers: what every rendering (text, JSON, page) shows, computed once from the model.
//
// Separate from the model (running totals) and from rendering (words and layout). Times are nanoseconds,
// sizes bytes, bandwidths 1e9 bytes per second. What could not be computed is absent (optional, or an empty
// list), never zero by default.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/communicator_report.h"
#include "collector/analysis/finding_subject.h"
#include "collector/analysis/hang.h"
#include "collector/analysis/long_steps.h"
#include "collector/analysis/own_cost.h"
#include "collector/analysis/process_state.h"
#include "collector/analysis/rank_types.h"
#include "collector/analysis/step_report.h"
#include "collector/model/distribution.h"
#include "collector/model/job_model.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::analysis {

struct DeviceCondition {
  std::string host;
  uint32_t ordinal = 0;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  double memory_gbytes_per_s = 0;  // as the driver states it; 0: not known
};

// Where only some steps of the program were recorded.
struct StepsRecorded {
  std::string marker;  // GPUPROBE_STEP_MARKER
  uint64_t start = 0;
  std::optional<uint64_t> stop;
  uint64_t every = 1;
  uint64_t begun = 0;     // steps of the rank that took most, recorded or not
  uint64_t recorded = 0;  // of these steps
};

// Several ranks computed on it.
struct SharedDevice {
  std::string host;
  int ordinal = 0;         // as the first of them counts
  std::vector<int> ranks;  // ascending
};

struct Conditions {
  std::string job;
  std::vector<std::string> hosts;
  std::vector<DeviceCondition> devices;
  std::vector<std::string> differing;  // what is not the same on all ranks, a clause each
  std::vector<SharedDevice> shared_devices;
  std::string cuda_driver;  // "13.0"; empty: not known
  std::string cuda_runtime;
  std::string cupti;
  std::string nccl;
  std::string probe_version;
  std::string collector_version;
  std::vector<std::string> command_line;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  int world_size = 0;   // 0: not known
  int ranks_heard = 0;  // distinct ranks (processes without rank count each)
  std::optional<int> ranks_expected;
  std::optional<StepsRecorded> steps_recorded;  // absent: everything was
  std::string step_marker;                      // --step-marker; empty: none
};

struct CutOff {
  std::string who;  // "rank 3 (pid 4711)"
  uint64_t last_data_ns = 0;
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

struct CopyReport {
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t busy_ns = 0;
  double gbytes_per_s = 0;  // bytes / sum of durations of those with records; 0 without
  uint64_t small = 0;       // of these, counted only (GPUPROBE_MIN_COPY_BYTES)
};

// Over the complete steps after the warm-up; for all ranks: means over the ranks that have steps.
struct SteadyKernel {
  uint64_t steps = 0;  // of the rank with most
  double calls = 0;    // a step and rank
  double time_ns = 0;  // a step and rank
  double std_ns = 0;   // of a rank's time from step to step
};

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

struct MemoryReport {
  uint64_t high_water_bytes = 0;
  uint64_t high_water_error_bytes = 0;  // how far it may be off: calls of several threads overlapped
  uint64_t high_water_at_ns = 0;        // 0: never
  uint64_t live_bytes = 0;
  uint64_t allocations = 0;
  uint64_t frees = 0;
  uint64_t small = 0;  // of the allocations, counted only (GPUPROBE_MIN_ALLOCATION_BYTES)
  uint64_t failed = 0;
  uint64_t largest_failed_bytes = 0;
  std::string high_water_range;
  std::string high_water_path;  // the ranges around it, too
  struct Held {
    uint64_t bytes = 0;
    std::string path;  // where it was allocated
  };
  std::vector<Held> largest;  // live at the mark, largest first
};

// How much of a device's memory is held across steps and how much lives within one (memory_trend.h).
struct MemoryTrend {
  uint64_t held_bytes = 0;                      // least level at the end: weights, optimizer, caches
  uint64_t within_step_bytes = 0;               // what a usual step adds to it: activations, gradients
  uint64_t peak_bytes = 0;                      // after the warm-up
  std::optional<double> growth_bytes_per_step;  // of memory held across steps; absent: it does not grow
  std::optional<double> steps_until_full;       // at that rate; absent without growth or capacity
};

// How high the level was in each step, and in the phases of the host's timeline.
struct MemoryBySteps {
  model::Summary step_peak_bytes;
  struct Phase {
    std::string name;
    uint64_t steps = 0;
    double mean_peak_bytes = 0;
    uint64_t peak_bytes = 0;
  };
  std::vector<Phase> phases;  // those that there were
};

// What the highest level within a step was made of, by when its allocations were made and freed, and what of
// one size is made in every step and never freed (lifetime_report.h).
struct MemoryLifetimesReport {
  std::string why_not;  // not empty: what hides lifetimes; the rest is empty then
  uint64_t steps = 0;   // whose allocations were classed: all but the last one
  uint64_t peak_step = 0;
  uint64_t peak_at_ns = 0;
  uint64_t peak_bytes = 0;
  struct Part {
    std::string lifetime;  // "before_steps", "from_forward", ...
    uint64_t bytes = 0;
  };
  std::vector<Part> parts;  // largest first; they add up to peak_bytes
  uint64_t from_backward_bytes_per_step = 0;
  // Categories of these parts, where there is evidence (memory_holdings.h).
  struct Holding {
    std::string what;      // "weights"; for the rest: "other, allocated before the first step"
    std::string lifetime;  // the part that it is, or is of
    uint64_t bytes = 0;
    std::string evidence;   // empty: none is needed
    bool inferred = false;  // else it was seen
  };
  std::vector<Holding> holdings;  // largest first; they add up to peak_bytes
  struct Growth {
    uint64_t size_bytes = 0;  // of each; 0: of many sizes
    std::string phase;        // in which they are made
    double allocations_per_step = 0;
    double bytes_per_step = 0;
  };
  std::vector<Growth> growth;  // largest first
  uint64_t unknown_frees = 0;
  uint64_t missed_frees = 0;
  uint64_t not_followed = 0;
};

// Memory that driver calls obtained on one device: without the context's, the modules' and the tools' own
// memory.
struct DeviceMemoryReport {
  uint32_t device = 0;
  std::optional<uint64_t> capacity_bytes;
  uint64_t live_bytes = 0;
  uint64_t high_water_bytes = 0;
  uint64_t high_water_error_bytes = 0;
  uint64_t high_water_at_ns = 0;
  std::map<std::string, uint64_t> at_high_water;  // bytes by kind
  std::optional<MemoryTrend> trend;
  std::optional<MemoryBySteps> by_step;
  std::optional<MemoryLifetimesReport> lifetimes;
};

// PyTorch's caching allocator on one device: the memory of tensors, and the memory it held for them.
struct PytorchMemoryReport {
  uint32_t device = 0;
  uint64_t allocated_bytes = 0;  // at the end
  uint64_t reserved_bytes = 0;
  uint64_t peak_allocated_bytes = 0;
  uint64_t peak_reserved_bytes = 0;
  std::optional<uint64_t> fragmentation_bytes;  // peak reserved - peak allocated: held, and never all in use
  uint64_t refusals = 0;
  uint64_t last_refused_bytes = 0;
  std::string last_refused_path;
  std::optional<MemoryTrend> trend;      // of the tensors' bytes
  std::optional<MemoryBySteps> by_step;  // of the tensors' bytes
  std::optional<MemoryLifetimesReport> lifetimes;
};

// A stream-ordered memory pool, as the driver counts it.
struct PoolReport {
  uint32_t pool = 0;  // from 1
  uint32_t device = 0;
  uint64_t used_bytes = 0;      // by allocations, after the last operation on the pool
  uint64_t reserved_bytes = 0;  // held of the device for them, likewise
  uint64_t at_ns = 0;           // of that operation
  uint64_t used_high_water_bytes = 0;
  uint64_t used_high_water_at_ns = 0;
  uint64_t reserved_high_water_bytes = 0;
  uint64_t reserved_high_water_at_ns = 0;
  uint64_t release_threshold_bytes = 0;
  uint64_t trims = 0;
  bool destroyed = false;
};

// An allocation that failed: out of memory.
struct RefusalReport {
  uint64_t time_ns = 0;
  std::string memory;
  uint64_t asked_bytes = 0;
  uint32_t device = 0;
  std::string path;
  std::map<std::string, uint64_t> live;  // bytes by kind: the device's, and the process's pinned ones
  uint64_t device_live_bytes = 0;        // resident on the device: all but pinned and managed
  std::optional<uint64_t> capacity_bytes;
  std::optional<uint64_t> free_at_most_bytes;  // capacity - device_live_bytes
};

struct PhaseReport {
  std::string name;
  std::string path;  // names from the outermost range on, joined by '/'
  int depth = 0;
  model::Summary gpu_ns;
  model::Summary host_ns;
  uint64_t unclosed = 0;
  uint64_t first_start_ns = 0;
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
  // Kernels below model::ProcessModel::kShortKernelNs.
  uint64_t short_kernels = 0;
  uint64_t short_kernel_ns = 0;
  std::map<std::string, PageableReport> pageable;  // h2d, d2h; those that there were
  // Nominal rate of the devices' host interface, if all have the same known one.
  std::optional<double> host_peak_gbytes_per_s;
};

// The arithmetic of a step, as the user states it; for utilisation.
struct ModelWork {
  double flops_per_step = 0;   // 0: not given
  double parameters = 0;       // of a transformer, with tokens_per_step: 6 x parameters x tokens
  double tokens_per_step = 0;  // of the whole job
  std::optional<bool> recompute = std::nullopt;  // activations are recomputed: the forward pass runs twice
  std::string type = "bf16";
  double peak_tflops = 0;  // of one device; 0: from the table
};

struct UtilisationReport {
  bool asked = false;  // any work was given
  double flops_per_step = 0;
  std::string formula;
  std::string type;
  uint32_t devices = 0;
  std::optional<double> peak_flops;  // of one device
  std::string peak_source;
  std::optional<double> mfu;
  std::optional<double> hfu;
  std::string missing;  // why there is no mfu; empty if there is
};

struct SyncReport {
  uint64_t count = 0;
  uint64_t duration_ns = 0;
};

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
  std::optional<Halt> end;  // how its process ended; absent: the collector did not see it
  std::vector<Stop> stops;  // in which it could not run
  HostLoad host_load;       // over the whole run
  StepMeans step_means;
  CausedWait caused;
};

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

enum class Severity { kInfo, kWarning, kError };

struct Finding {
  std::string statement;
  std::string evidence;
  std::string advice;
  // How much shorter a step would be without it; findings rank by it.
  std::optional<double> cost_ns_per_step = std::nullopt;
  bool ends_job = false;  // within a day, if it goes on: listed with the problems
  FindingSubject about = {};
  std::string id = {};    // this and the severity: from the table (finding_rules.h)
  Severity severity = Severity::kInfo;
};

struct Report {
  Conditions conditions;
  Trust trust;
  std::vector<RankReport> ranks;
  std::optional<StepsReport> steps;           // over all ranks
  std::vector<CollectiveReport> collectives;  // over all ranks
  std::vector<PhaseReport> phases;            // over all ranks: statistics of all instances
  std::vector<KernelReport> top_kernels;      // over all ranks
  ComputeReport compute;                      // over all ranks
  UtilisationReport utilisation;
  std::vector<Straggler> stragglers;  // slowest first
  std::optional<LongStepsReport> long_steps;
  ClockReport clock;
  std::vector<LinkModel> link_models;
  CommunicationReport communication;
  std::vector<CommunicatorReport> communicators;  // in the order in which they were made
  std::vector<Hang> hangs;                        // longest first
  std::vector<Finding> findings;
  std::vector<PastHang> past_hangs;  // in the order in which they were reported
};

// Inputs that the model cannot know.
struct ReportInput {
  std::string collector_version;
  std::vector<std::string> damaged_logs;  // a sentence each
  uint64_t unrecorded_frames = 0;
  uint64_t detail_since_ns = 0;           // as Trust.detail_since_ns
  bool step_records = false;              // give the records of single steps, too
  std::vector<std::string> command_line;  // of the run; empty: that of the first rank
  ModelWork work;
  uint64_t hang_after_ns = kDefaultHangAfterNs;
  std::optional<double> link_peak;  // 1e9 bytes per second that a link carries
  bool all_kernels = false;         // top_kernels over all ranks without a limit
};

// `job` must be finished. Pure.
Report BuildReport(const model::JobModel& job, const ReportInput& input);

// The findings that the rest of the report proves (finding_rules.h), worst first.
std::vector<Finding> FindingsOf(const Report& report);

}  // namespace gpuprobe::analysis
