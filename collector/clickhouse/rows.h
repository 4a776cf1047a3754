// The rows that a hub writes: what is kept of each job when its records are gone.
//
// Each is one table; its columns, their types and the tables of docs/clickhouse.md derive from these
// declarations (columns.h, schema.h). Times are UTC, durations nanoseconds. All begin with the job that they
// are of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/clickhouse/columns.h"

namespace gpuprobe::clickhouse {

struct JobKey {
  Word cluster;  // hubs of one name are one cluster
  Word job;      // as its launcher tells all hosts
  uint16_t attempt = 0;
  Word user;

  static constexpr void Declare(auto& columns) {
    columns("cluster", &JobKey::cluster, "the name that its hub was given (`--cluster`)");
    columns("job", &JobKey::job, "its name, as its launcher tells all hosts");
    columns("attempt", &JobKey::attempt, "from 1: which job of this name it is, as its hub counts");
    columns("user", &JobKey::user, "whose it is: a user of the hub, or whose hub it reports to");
  }
};

struct JobRow {
  static constexpr char kTable[] = "jobs";
  static constexpr char kMeaning[] = "one for each job; the last row counts";
  static constexpr char kOrder[] = "cluster, job, attempt, user";
  static constexpr char kVersion[] = "updated";
  static constexpr char kDay[] = "begun";
  static constexpr int kDays = 730;

  JobKey of;
  Time updated;
  Word hub;
  std::string run;
  Word state;
  Time begun;
  std::optional<Time> ended;
  std::vector<std::string> hosts;
  uint32_t world_size = 0;
  uint32_t ranks = 0;
  uint32_t gpus = 0;
  Word gpu_name;
  Word cuda_driver;
  Word nccl;
  uint64_t steps = 0;
  uint32_t revision = 0;
  std::optional<double> step_ns;
  double gpu_seconds = 0;
  Word finding;
  std::string statement;

  static constexpr void Declare(auto& columns) {
    using R = JobRow;
    columns.Inline(&R::of);
    columns("updated", &R::updated, "when this was so");
    columns("hub", &R::hub, "host of the hub that wrote it");
    columns("run", &R::run, "its directory at the hub");
    columns("state", &R::state, "running, hangs or over");
    columns("begun", &R::begun, "when its first host reported");
    columns("ended", &R::ended, "when it was over; NULL: it is not");
    columns("hosts", &R::hosts, "names of its hosts");
    columns("world_size", &R::world_size, "as its launcher says; 0: not known");
    columns("ranks", &R::ranks, "that have reported");
    columns("gpus", &R::gpus, "on which they compute; 0: not known");
    columns("gpu_name", &R::gpu_name, "of the first one");
    columns("cuda_driver", &R::cuda_driver, "CUDA version of the driver");
    columns("nccl", &R::nccl, "version of NCCL");
    columns("steps", &R::steps, "that all ranks have done");
    columns("revision", &R::revision, "of its steps: earlier ones in `steps` and its sums do not count");
    columns("step_ns", &R::step_ns, "mean time of a step, without the warm-up; NULL: none was found");
    columns("gpu_seconds", &R::gpu_seconds, "its ranks times how long each was recorded");
    columns("finding", &R::finding, "the first finding so far; empty: none");
    columns("statement", &R::statement, "what it says");
  }
};

struct RankRow {
  static constexpr char kTable[] = "ranks";
  static constexpr char kMeaning[] =
      "one for each rank of a job; the last row counts. Sums are over its measured steps";
  static constexpr char kOrder[] = "cluster, job, attempt, user, rank, pid, device";
  static constexpr char kVersion[] = "updated";
  static constexpr char kDay[] = "begun";
  static constexpr int kDays = 730;

  JobKey of;
  Time updated;
  Time begun;
  int32_t rank = -1;
  uint32_t pid = 0;
  Word host;
  int32_t device = -1;
  Word gpu_uuid;
  Word gpu_name;
  Word probe;
  uint64_t steps = 0;
  uint64_t measured_steps = 0;
  uint64_t step_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t exposed_comm_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t idle_ns = 0;
  uint64_t caused_wait_ns = 0;
  uint64_t waited_ns = 0;
  uint64_t kernels = 0;
  uint64_t kernel_ns = 0;
  uint64_t records = 0;
  uint64_t lost_records = 0;

  static constexpr void Declare(auto& columns) {
    using R = RankRow;
    columns.Inline(&R::of);
    columns("updated", &R::updated, "when this was so");
    columns("begun", &R::begun, "first event of the process");
    columns("rank", &R::rank, "-1: not known");
    columns("pid", &R::pid, "its process");
    columns("host", &R::host, "its host");
    columns("device", &R::device, "ordinal of the GPU with most of its kernels; -1: none");
    columns("gpu_uuid", &R::gpu_uuid, "of that GPU");
    columns("gpu_name", &R::gpu_name, "of that GPU");
    columns("probe", &R::probe, "version of the probe");
    columns("steps", &R::steps, "that it has done");
    columns("measured_steps", &R::measured_steps, "complete ones after the warm-up: what the sums are over");
    columns("step_ns", &R::step_ns, "sum of their times");
    columns("compute_ns", &R::compute_ns, "sum of the time with kernels");
    columns("exposed_comm_ns", &R::exposed_comm_ns, "sum of the time with nothing but NCCL's kernels");
    columns("copy_ns", &R::copy_ns, "sum of the time with nothing but copies");
    columns("idle_ns", &R::idle_ns, "sum of the time with nothing");
    columns("caused_wait_ns", &R::caused_wait_ns, "how long the mean of the others waited for it");
    columns("waited_ns", &R::waited_ns, "how long it waited for others in collectives");
    columns("kernels", &R::kernels, "number of kernels");
    columns("kernel_ns", &R::kernel_ns, "sum of their times");
    columns("records", &R::records, "that it has sent");
    columns("lost_records", &R::lost_records, "that are known to be lost");
  }
};

struct StepRow {
  static constexpr char kTable[] = "steps";
  static constexpr char kMeaning[] =
      "one for each rank and step, some steps after it was done. The parts add up to `total_ns`";
  static constexpr char kOrder[] = "cluster, job, attempt, user, step, rank, device";
  static constexpr char kVersion[] = "revision";
  static constexpr char kDay[] = "start";
  static constexpr int kDays = 90;

  JobKey of;
  uint32_t revision = 0;
  uint64_t step = 0;
  int32_t rank = -1;
  int32_t device = -1;
  Word host;
  Time start;
  uint64_t total_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t exposed_comm_ns = 0;
  uint64_t copy_ns = 0;
  uint64_t host_bound_ns = 0;
  uint64_t input_wait_ns = 0;
  uint64_t sync_ns = 0;
  uint64_t memory_ns = 0;
  uint64_t pause_ns = 0;
  uint64_t launch_gap_ns = 0;
  uint64_t unknown_ns = 0;
  uint64_t comm_ns = 0;
  uint64_t h2d_phase_ns = 0;
  uint64_t forward_ns = 0;
  uint64_t backward_ns = 0;
  uint64_t optimizer_ns = 0;
  uint32_t operations = 0;
  uint32_t lost_operations = 0;
  uint64_t error_ns = 0;
  bool warmup = false;
  bool incomplete = false;

  static constexpr void Declare(auto& columns) {
    using R = StepRow;
    columns.Inline(&R::of);
    columns("revision", &R::revision,
            "grows where the job's steps are counted anew; `jobs` has the one that counts");
    columns("step", &R::step, "its number, the same on all ranks");
    columns("rank", &R::rank, "-1: not known");
    columns("device", &R::device, "ordinal of the GPU, where a process drives several; else -1");
    columns("host", &R::host, "the rank's host");
    columns("start", &R::start, "when it began on the device");
    columns("total_ns", &R::total_ns, "how long it took");
    columns("compute_ns", &R::compute_ns, "time with kernels, without NCCL's");
    columns("exposed_comm_ns", &R::exposed_comm_ns, "time with nothing but NCCL's kernels");
    columns("copy_ns", &R::copy_ns, "time with nothing but copies");
    columns("host_bound_ns", &R::host_bound_ns, "idle: the host was launching, and came late");
    columns("input_wait_ns", &R::input_wait_ns, "idle: the host waited for input");
    columns("sync_ns", &R::sync_ns, "idle: the host was blocked in a synchronising call");
    columns("memory_ns", &R::memory_ns, "idle: the host allocated or released memory");
    columns("pause_ns", &R::pause_ns, "idle: the host launched nothing");
    columns("launch_gap_ns", &R::launch_gap_ns, "idle: launched, and not started");
    columns("unknown_ns", &R::unknown_ns, "idle: no launch was seen");
    columns("comm_ns", &R::comm_ns, "time with NCCL's kernels, whatever else ran");
    columns("h2d_phase_ns", &R::h2d_phase_ns, "of the step: copies of its input");
    columns("forward_ns", &R::forward_ns, "of the step: the forward pass");
    columns("backward_ns", &R::backward_ns, "of the step: the backward pass");
    columns("optimizer_ns", &R::optimizer_ns, "of the step: the optimizer");
    columns("operations", &R::operations, "kernels, copies and memsets");
    columns("lost_operations", &R::lost_operations, "of which no record came");
    columns("error_ns", &R::error_ns, "by how much its beginning or end may be off for that");
    columns("warmup", &R::warmup, "much longer than later ones: in no mean");
    columns("incomplete", &R::incomplete, "its parts are estimates");
  }
};

struct FindingRow {
  static constexpr char kTable[] = "findings";
  static constexpr char kMeaning[] =
      "one for each finding of a job and what it is about; the last row counts. It opens when two reports in "
      "a "
      "row have it, and closes when three in a row do not";
  static constexpr char kOrder[] = "cluster, job, attempt, user, finding, subject";
  static constexpr char kVersion[] = "updated";
  static constexpr char kDay[] = "opened";
  static constexpr int kDays = 730;

  JobKey of;
  Time updated;
  Word finding;
  std::string subject;
  Word severity;
  std::string statement;
  std::string evidence;
  std::string advice;
  std::optional<double> cost_ns_per_step;
  double lost_gpu_seconds = 0;
  std::optional<uint64_t> first_step;
  std::optional<uint64_t> last_step;
  std::vector<int32_t> ranks;
  std::vector<std::string> hosts;
  std::vector<std::string> gpu_uuids;
  Time opened;
  std::optional<Time> closed;
  bool at_end = false;

  static constexpr void Declare(auto& columns) {
    using R = FindingRow;
    columns.Inline(&R::of);
    columns("updated", &R::updated, "when this was so");
    columns("finding", &R::finding, "its id (docs/findings)");
    columns("subject", &R::subject, "the ranks that it is about: `3`, `0,4`; empty: all");
    columns("severity", &R::severity, "error, warning or info");
    columns("statement", &R::statement, "what was concluded");
    columns("evidence", &R::evidence, "from which numbers");
    columns("advice", &R::advice, "what to do about it");
    columns("cost_ns_per_step", &R::cost_ns_per_step, "how much shorter a step would be; NULL: not known");
    columns("lost_gpu_seconds", &R::lost_gpu_seconds,
            "estimated: that cost times the steps and ranks so far; 0: not known");
    columns("first_step", &R::first_step, "from which on it holds; NULL: from the first");
    columns("last_step", &R::last_step, "up to which; NULL: to the last");
    columns("ranks", &R::ranks, "that it is about; empty: all");
    columns("hosts", &R::hosts, "their hosts; empty: it is about all ranks");
    columns("gpu_uuids", &R::gpu_uuids, "their GPUs; empty: it is about all ranks");
    columns("opened", &R::opened, "when it was first so");
    columns("closed", &R::closed, "when it was no more so; NULL: it is");
    columns("at_end", &R::at_end, "it is in the report of the whole job");
  }
};

struct LevelRow {
  static constexpr char kTable[] = "levels";
  static constexpr char kMeaning[] = "one for each rank, GPU and minute: how they were then";
  static constexpr char kOrder[] = "cluster, job, attempt, user, time, rank, device";
  static constexpr char kVersion[] = "";
  static constexpr char kDay[] = "time";
  static constexpr int kDays = 90;

  JobKey of;
  Time time;
  int32_t rank = -1;
  Word host;
  int32_t device = -1;
  Word gpu_uuid;
  uint64_t memory_live_bytes = 0;
  uint64_t memory_high_bytes = 0;
  uint64_t memory_capacity_bytes = 0;
  uint32_t clock_mhz = 0;
  double power_w = 0;
  uint32_t temperature_c = 0;
  uint64_t limited_ns = 0;
  uint64_t gpu_errors = 0;

  static constexpr void Declare(auto& columns) {
    using R = LevelRow;
    columns.Inline(&R::of);
    columns("time", &R::time, "when");
    columns("rank", &R::rank, "-1: not known");
    columns("host", &R::host, "the rank's host");
    columns("device", &R::device, "ordinal of the GPU");
    columns("gpu_uuid", &R::gpu_uuid, "of the GPU");
    columns("memory_live_bytes", &R::memory_live_bytes, "what the process holds there");
    columns("memory_high_bytes", &R::memory_high_bytes, "the most that it has held there");
    columns("memory_capacity_bytes", &R::memory_capacity_bytes, "of the GPU; 0: not known");
    columns("clock_mhz", &R::clock_mhz, "of its multiprocessors, as NVML says; 0: not asked");
    columns("power_w", &R::power_w, "as NVML says; 0: not asked");
    columns("temperature_c", &R::temperature_c, "as NVML says; 0: not asked");
    columns("limited_ns", &R::limited_ns, "how long so far heat or power kept its clock down");
    columns("gpu_errors", &R::gpu_errors, "Xid errors so far");
  }
};

struct CollectiveRow {
  static constexpr char kTable[] = "collectives";
  static constexpr char kMeaning[] =
      "one for each rank, communicator, operation, size and minute in which it was called";
  static constexpr char kOrder[] = "cluster, job, attempt, user, time, communicator, rank";
  static constexpr char kVersion[] = "";
  static constexpr char kDay[] = "time";
  static constexpr int kDays = 30;

  JobKey of;
  Time time;
  uint64_t window_ns = 0;
  int32_t rank = -1;
  Word host;
  Word communicator;
  uint32_t communicator_ranks = 0;
  Word operation;
  uint64_t size_bytes = 0;
  uint64_t calls = 0;
  uint64_t bytes = 0;
  uint64_t time_ns = 0;
  uint64_t wait_ns = 0;
  uint64_t transfer_ns = 0;

  static constexpr void Declare(auto& columns) {
    using R = CollectiveRow;
    columns.Inline(&R::of);
    columns("time", &R::time, "end of the minute");
    columns("window_ns", &R::window_ns, "how long it was");
    columns("rank", &R::rank, "-1: not known");
    columns("host", &R::host, "the rank's host");
    columns("communicator", &R::communicator, "its hash, the same on all of its ranks");
    columns("communicator_ranks", &R::communicator_ranks, "its size");
    columns("operation", &R::operation, "`AllReduce`; of a group of several: joined by `+`");
    columns("size_bytes", &R::size_bytes, "of one call, or of a group of calls; 0: several sizes");
    columns("calls", &R::calls, "in the window");
    columns("bytes", &R::bytes, "that these were called with");
    columns("time_ns", &R::time_ns, "sum of their GPU times");
    columns("wait_ns", &R::wait_ns, "the part in which it waited for other ranks");
    columns("transfer_ns", &R::transfer_ns, "the rest, of those that could be compared");
  }
};

struct KernelRow {
  static constexpr char kTable[] = "kernels";
  static constexpr char kMeaning[] =
      "one for each rank, kernel and minute; of the kernels that took longest in it, the others are one row";
  static constexpr char kOrder[] = "cluster, job, attempt, user, time, kernel, rank";
  static constexpr char kVersion[] = "";
  static constexpr char kDay[] = "time";
  static constexpr int kDays = 30;

  JobKey of;
  Time time;
  uint64_t window_ns = 0;
  int32_t rank = -1;
  Word host;
  int32_t device = -1;
  Word kernel;
  uint64_t calls = 0;
  uint64_t time_ns = 0;

  static constexpr void Declare(auto& columns) {
    using R = KernelRow;
    columns.Inline(&R::of);
    columns("time", &R::time, "end of the minute");
    columns("window_ns", &R::window_ns, "how long it was");
    columns("rank", &R::rank, "-1: not known");
    columns("host", &R::host, "the rank's host");
    columns("device", &R::device, "ordinal of the GPU");
    columns("kernel", &R::kernel, "its name; empty: all the others");
    columns("calls", &R::calls, "in the window");
    columns("time_ns", &R::time_ns, "sum of their times");
  }
};

struct LossRow {
  static constexpr char kTable[] = "losses";
  static constexpr char kMeaning[] = "what could not be written here, or was lost before";
  static constexpr char kOrder[] = "cluster, job, attempt, user, time";
  static constexpr char kVersion[] = "";
  static constexpr char kDay[] = "time";
  static constexpr int kDays = 730;

  JobKey of;
  Time time;
  Word what;
  Word why;
  uint64_t count = 0;

  static constexpr void Declare(auto& columns) {
    using R = LossRow;
    columns.Inline(&R::of);
    columns("time", &R::time, "when that was noticed");
    columns("what", &R::what, "rows of a table, or `records` that a program's probe has lost");
    columns("why", &R::why, "`spool_full`, `refused`, `disk`, or why the probe lost them");
    columns("count", &R::count, "how many");
  }
};

// visit(Row()) of each.
void ForEachTable(auto&& visit) {
  visit(JobRow());
  visit(RankRow());
  visit(StepRow());
  visit(FindingRow());
  visit(LevelRow());
  visit(CollectiveRow());
  visit(KernelRow());
  visit(LossRow());
}

}  // namespace gpuprobe::clickhouse
