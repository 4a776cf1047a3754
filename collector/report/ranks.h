// Everything that the report says about one rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/statistics/distribution.h"
#include "collector/report/collectives.h"
#include "collector/report/gpu_health.h"
#include "collector/report/host_time.h"
#include "collector/report/last_moments.h"
#include "collector/report/memory.h"
#include "collector/report/phases.h"
#include "collector/report/processes.h"
#include "collector/report/steps.h"
#include "collector/report/waiting.h"
#include "collector/report/work.h"

namespace gpuprobe::analysis {

// Inferred from the kernels' names.
enum class Optimizer { kUnknown, kAdam, kLamb };

struct RankReport {
  std::optional<int> rank;
  // "0", or "pid 4711"; of a process that drives several GPUs "0/GPU 1", or "GPU 1" if it is the only one.
  std::string label;
  std::string host;
  uint32_t pid = 0;
  std::optional<uint32_t> device;
  std::vector<uint32_t> devices;
  // Its process drives several GPUs, and this is one of them. What is known of the process alone is with the
  // first: host memory, synchronising calls, phases, how it ended.
  bool is_device = false;
  bool is_first = true;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t kernel_count = 0;
  uint64_t kernel_busy_ns = 0;
  uint64_t kernel_total_ns = 0;
  uint64_t graph_kernels = 0;
  model::Summary launch_delay_ns;
  uint64_t memset_count = 0;
  uint64_t memset_bytes = 0;
  uint64_t memset_ns = 0;
  report::WordMap<v1::CopyDirection, CopyReport> copies;
  report::WordMap<v1::SyncKind, SyncReport> syncs;
  SyncReport blocked;
  report::WordMap<v1::MemoryKind, MemoryReport> memory;
  std::vector<DeviceMemoryReport> device_memory;
  std::vector<PytorchMemoryReport> pytorch_memory;
  Optimizer optimizer = Optimizer::kUnknown;
  std::vector<PoolReport> pools;
  std::vector<RefusalReport> out_of_memory;  // in order of time
  std::vector<CollectiveReport> collectives;
  std::vector<PhaseReport> phases;
  std::vector<KernelReport> top_kernels;
  std::optional<StepsReport> steps;
  uint64_t last_step_launch_ns = 0;  // first launch of the last complete step; 0: no step was found
  bool cut_off = false;
  bool cut_off_by_collector = false;  // see CutOff
  std::optional<Halt> end;
  std::optional<LastMoments> last_moments;  // of a process that was cut off
  std::vector<Stop> stops;
  HostLoad host_load;
  GpuHealth gpu_health;
  std::vector<HostTimeReport> host_time;
  StepMeans step_means;
  CausedWait caused;

  // Whether others are compared with it: processes without a rank may do something else.
  bool IsCompared() const { return rank.has_value() || is_device; }
  // "rank 3", "process 4711", "GPU 1", "GPU 1 of rank 0"
  std::string Name() const;

  static constexpr void Declare(auto& fields) {
    using R = RankReport;
    fields("rank", &R::rank, "`null` if unknown").InSummary();
    fields("host", &R::host, "its host").InSummary();
    fields("pid", &R::pid, "its process").InSummary();
    fields("device", &R::device, "ordinal of the device with most kernels").InSummary();
    fields
        .Computed(
            "gpu", [](const R& r) { return r.is_device ? r.device : std::nullopt; },
            [](R& r, const auto& gpu) { r.is_device = gpu.has_value(); },
            "ordinal of the device that this entry is about, if its process drives several and each has an "
            "entry; else `null`. The steps are the process's, their parts this device's. What is known of "
            "the process alone is in the entry of its first device: host memory, `syncs`, `phases`, "
            "`memsets`, `end`, `stops`")
        .InSummary();
    fields("devices", &R::devices, "all devices with kernels");
    fields("start_ns", &R::start_ns, "first event of the process");
    fields("duration_ns", &R::duration_ns, "time from there to its last one");
    fields("cut_off", &R::cut_off, "whether its later records are missing").InSummary();
    fields("end", &R::end, "how the process ended, as the collector saw from outside; `null`: not seen");
    fields("last_moments", &R::last_moments,
           "what it did last, of a process that was cut off, as its flight recorder "
           "kept it; absent: it was not cut off, or nothing was kept")
        .AbsentIfEmpty();
    fields("stops", &R::stops,
           "the last eight times of a second or more in which none of its threads could run, to the second");
    fields("host_load", &R::host_load, "what its host did to it, over the whole run");
    fields("gpu_health", &R::gpu_health,
           "how well `device` was, as NVML on its host reported; absent: nobody asked, or it does not know")
        .AbsentIfEmpty()
        .InSummary();
    fields
        .Group("kernels", "its kernels",
               [](auto& group) {
                 group("count", &R::kernel_count, "how many").InSummary();
                 group("busy_ns", &R::kernel_busy_ns,
                       "length of their union, per device, summed over devices")
                     .InSummary();
                 group("total_ns", &R::kernel_total_ns, "sum of durations");
                 group("from_graphs", &R::graph_kernels, "how many were launched by CUDA graphs");
                 group("launch_delay_ns", &R::launch_delay_ns,
                       "time from a launch's API entry to the kernel's start, without kernels in graphs");
               })
        .InSummary();
    fields("copies", &R::copies,
           "by direction: always `h2d`, `d2h`, `d2d` and `p2p`, `h2h` if there were any");
    fields.Group("memsets", "its memsets", [](auto& group) {
      group("count", &R::memset_count, "how many");
      group("bytes", &R::memset_bytes, "what they set");
      group("duration_ns", &R::memset_ns, "sum of durations");
    });
    fields("syncs", &R::syncs, "synchronising calls: `stream`, `device`, `event`, `stream_wait_event`");
    fields("wait", &R::caused, "who waited for this rank, and what it waited itself").InSummary();
    fields.Group("sync",
                 "waiting of the host in synchronising calls: sum of `syncs` without `stream_wait_event`, in "
                 "which the device waits",
                 [](auto& group) {
                   group(
                       "count", [](auto& r) -> auto& { return r.blocked.count; }, "calls");
                   group(
                       "blocked_ns", [](auto& r) -> auto& { return r.blocked.duration_ns; },
                       "sum of their lengths");
                 });
    fields("collectives", &R::collectives, "as at the top level, of this rank");
    fields
        .Group("memory",
               "by kind: always `device`, `host_pinned` (registered memory included), `managed` and `pool`; "
               "`array`, `vmm` and `graph` if used",
               [](auto& group) {
                 group.Entries(&R::memory, "a kind of memory").InSummary();
                 group("pytorch", &R::pytorch_memory,
                       "PyTorch's caching allocator, by device, if it was seen")
                     .AbsentIfEmpty();
                 group("pools", &R::pools,
                       "stream-ordered memory pools as the driver counts them, if there were any. (`pool` "
                       "is what the program asked of all pools)")
                     .AbsentIfEmpty();
               })
        .InSummary();
    fields("device_memory", &R::device_memory, "what the process obtained of each device");
    fields("out_of_memory", &R::out_of_memory,
           "refused allocations by time, at most 64, always including the last");
    fields("phases", &R::phases, "as at the top level, of this rank");
    fields("top_kernels", &R::top_kernels, "as at the top level, of this rank");
    fields("steps", &R::steps, "as at the top level, of this rank").InSummary();
    fields("host_time", &R::host_time, "as at the top level, of this rank").AbsentIfEmpty();
    fields.Unwritten(&R::label, &R::is_device, &R::is_first, &R::blocked, &R::optimizer,
                     &R::last_step_launch_ns, &R::cut_off_by_collector, &R::step_means);
  }
};

}  // namespace gpuprobe::analysis
