// Under which conditions the job ran: hosts, devices, versions, ranks, and what was recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

struct DeviceCondition {
  std::string host;
  uint32_t ordinal = 0;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  double memory_gbytes_per_s = 0;  // 0: not known

  static constexpr void Declare(auto& fields) {
    using D = DeviceCondition;
    fields("host", &D::host, "its host");
    fields("ordinal", &D::ordinal, "its number there, as the first process that sees it counts");
    fields("name", &D::name, "as the driver names it");
    fields("uuid", &D::uuid, "as the driver states it");
    fields("memory_bytes", &D::memory_bytes, "size of its memory");
    fields("memory_gbytes_per_s", &D::memory_gbytes_per_s,
           "bandwidth of its memory, as the driver states it; `null`: not known")
        .NullIfZero();
  }
};

// Where only some steps of the program were recorded.
struct StepsRecorded {
  std::string marker;
  uint64_t start = 0;
  std::optional<uint64_t> stop;
  uint64_t every = 1;
  uint64_t begun = 0;
  uint64_t recorded = 0;

  static constexpr void Declare(auto& fields) {
    using S = StepsRecorded;
    fields("marker", &S::marker, "`GPUPROBE_STEP_MARKER`");
    fields("start", &S::start, "`GPUPROBE_START_STEP`");
    fields("stop", &S::stop, "`GPUPROBE_STOP_STEP`; `null`: none");
    fields("every", &S::every, "`GPUPROBE_EVERY_STEPS`");
    fields("begun", &S::begun, "steps that the program began, of the rank that took most");
    fields("recorded", &S::recorded, "how many of these were recorded");
  }
};

// What was captured, at levels idle and calls.
struct CapturedWindow {
  std::optional<uint64_t> first_step;
  std::optional<uint64_t> last_step;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  std::vector<int> ranks;

  static constexpr void Declare(auto& fields) {
    using W = CapturedWindow;
    fields("first_step", &W::first_step,
           "the first step that was recorded, as the program counts them; `null`: a window of time");
    fields("last_step", &W::last_step, "the last one; `null`: as `first_step`");
    fields("start_ns", &W::start_ns, "when it began, on the first rank that began it");
    fields("end_ns", &W::end_ns, "when it ended, on the last one");
    fields("ranks", &W::ranks, "ranks that recorded it; a process without a rank is none");
  }
};

// The run was at level idle or calls.
struct OnDemand {
  std::string level;
  std::string steps_by;
  std::vector<CapturedWindow> windows;

  static constexpr void Declare(auto& fields) {
    using D = OnDemand;
    fields("level", &D::level, "`idle` or `calls`");
    fields("steps_by", &D::steps_by,
           "how steps were counted alike on all ranks: `marker` (`GPUPROBE_STEP_MARKER`), `calls` "
           "(collectives on the largest communicator) or `time` (not at all); `null`: nothing was captured")
        .NullIfZero();
    fields("windows", &D::windows, "what was recorded, in time");
  }
};

// Several processes computed on it at the same time.
struct SharedDevice {
  std::string host;
  int ordinal = 0;
  std::vector<int> ranks;
  std::vector<std::string> processes;

  static constexpr void Declare(auto& fields) {
    using D = SharedDevice;
    fields("host", &D::host, "host of the device");
    fields("ordinal", &D::ordinal, "its number, as the first of the processes counts");
    fields("ranks", &D::ranks, "their ranks, ascending");
    fields("processes", &D::processes,
           "named as in the table of ranks: `0`, or `0 (pid 4711)`, or `pid 4711`");
  }
};

// Processes hold memory on a device on which another one computes, and they do not.
struct StrayMemory {
  std::string host;
  int ordinal = 0;
  std::string owner;
  struct User {
    std::string label;
    std::optional<int> rank;
    uint64_t peak_bytes = 0;
    uint64_t held_bytes = 0;

    static constexpr void Declare(auto& fields) {
      fields("process", &User::label, "named as in the table of ranks");
      fields("rank", &User::rank, "`null` if it has none");
      fields("peak_bytes", &User::peak_bytes, "the most that it held there");
      fields("held_bytes", &User::held_bytes, "what it held at the end");
    }
  };
  std::vector<User> users;  // by rank

  static constexpr void Declare(auto& fields) {
    using D = StrayMemory;
    fields("host", &D::host, "host of the device");
    fields("ordinal", &D::ordinal, "its number, as `owner` counts");
    fields("owner", &D::owner, "the process that computes on it");
    fields("users", &D::users, "processes that hold memory there without computing there");
  }
};

// No process computes on it, though one sees it.
struct IdleDevice {
  std::string host;
  int ordinal = 0;
  uint64_t peak_bytes = 0;
  uint64_t held_bytes = 0;
  uint64_t kernels = 0;

  static constexpr void Declare(auto& fields) {
    using D = IdleDevice;
    fields("host", &D::host, "host of the device");
    fields("ordinal", &D::ordinal, "its number, as the first process that sees it counts");
    fields("peak_bytes", &D::peak_bytes, "memory that processes held there at most");
    fields("held_bytes", &D::held_bytes, "and at the end");
    fields("kernels", &D::kernels, "the few kernels that ran there");
  }
};

// Several processes said that they were this rank, at the same time.
struct DuplicateRank {
  int rank = 0;
  std::vector<uint32_t> pids;

  static constexpr void Declare(auto& fields) {
    fields("rank", &DuplicateRank::rank, "the rank");
    fields("pids", &DuplicateRank::pids, "the processes that were it");
  }
};

struct Conditions {
  std::string job;
  std::vector<std::string> hosts;
  std::vector<DeviceCondition> devices;
  int devices_used = 0;
  std::vector<std::string> differing;
  std::vector<SharedDevice> shared_devices;
  std::vector<StrayMemory> stray_memory;
  std::vector<IdleDevice> idle_devices;  // by host and ordinal
  std::vector<DuplicateRank> duplicate_ranks;
  std::string cuda_driver;  // "13.0"
  std::string cuda_runtime;
  std::string cupti;
  std::string nccl;
  std::string probe_version;
  std::string collector_version;
  std::vector<std::string> command_line;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  int world_size = 0;  // 0: not known
  int ranks_heard = 0;
  std::optional<int> ranks_expected;
  std::optional<StepsRecorded> steps_recorded;
  std::optional<OnDemand> on_demand;
  std::string step_marker;

  static constexpr void Declare(auto& fields) {
    using C = Conditions;
    fields("job", &C::job, "the launcher's run id, may be empty");
    fields("hosts", &C::hosts, "what took part");
    fields("step_marker", &C::step_marker, "`--step-marker` as it was given; `null`: none").NullIfZero();
    fields("devices", &C::devices, "devices that any process sees");
    fields("devices_used", &C::devices_used, "devices on which a process computes; 0: not known");
    fields("differing", &C::differing, "what is not the same on all ranks, one clause each");
    fields("shared_devices", &C::shared_devices,
           "devices on which several processes ran kernels at the same time");
    fields("stray_memory", &C::stray_memory,
           "devices on which one process computes and on which others hold memory");
    fields("idle_devices", &C::idle_devices,
           "devices on which no process computes, on hosts on which one does");
    fields("duplicate_ranks", &C::duplicate_ranks, "ranks that several processes were at the same time");
    fields("cuda_driver", &C::cuda_driver, "version of the driver's CUDA").NullIfZero();
    fields("cuda_runtime", &C::cuda_runtime, "version of the runtime").NullIfZero();
    fields("cupti", &C::cupti, "version of CUPTI").NullIfZero();
    fields("nccl", &C::nccl, "version of NCCL").NullIfZero();
    fields("probe_version", &C::probe_version, "version of the library in the processes");
    fields("collector_version", &C::collector_version, "version of the program that recorded");
    fields("command_line", &C::command_line, "of the run, or of the first process");
    fields("start_ns", &C::start_ns, "first event that any process recorded");
    fields("duration_ns", &C::duration_ns, "time from there to the last one");
    fields("world_size", &C::world_size, "ranks of the job, as the launcher said; `null`: not known")
        .NullIfZero();
    fields("ranks_heard", &C::ranks_heard,
           "ranks whose records are here; processes without a rank count each");
    fields("ranks_expected", &C::ranks_expected, "ranks that record (`GPUPROBE_RANKS`); `null`: all");
    fields("steps_recorded", &C::steps_recorded,
           "if only some steps were recorded: what was asked for, and how many there were. Every count and "
           "sum is of these. Else `null`");
    fields("on_demand", &C::on_demand,
           "at `GPUPROBE_LEVEL=idle` and `calls`: what `gpuprobe capture`, or at `calls` the collector, had "
           "recorded. Every count and sum is of this, but for `call_trace`. Else `null`");
  }
};

}  // namespace gpuprobe::analysis
