#include "collector/http/job_metrics.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gpuprobe::http {
namespace {

using analysis::DeviceMemoryNumbers;
using analysis::GpuHealthNumbers;
using analysis::RankNumbers;
using prometheus::ClientMetric;
using prometheus::MetricType;

constexpr char kRank[] = "host, rank";

MetricLabels Of(const RankNumbers& rank) { return {{"host", rank.host}, {"rank", rank.rank}}; }
MetricLabels Of(const RankNumbers& rank, const char* name, std::string value) {
  return {{"host", rank.host}, {"rank", rank.rank}, {name, std::move(value)}};
}

template <typename Value>
void ForRanks(const JobView& m, Family& family, Value value) {
  for (const RankNumbers* rank : m.ranks) family.Add(Of(*rank), value(*rank));
}

template <typename Value>
void ForDevices(const JobView& m, Family& family, Value value) {
  for (const RankNumbers* rank : m.ranks) {
    for (const DeviceMemoryNumbers& memory : rank->memory)
      family.Add(Of(*rank, "device", absl::StrCat(memory.device)), value(memory));
  }
}

template <typename Value>
void ForGpus(const JobView& m, Family& family, Value value) {
  for (const RankNumbers* rank : m.ranks) {
    for (const GpuHealthNumbers& gpu : rank->gpus)
      family.Add(Of(*rank, "device", absl::StrCat(gpu.device)), value(gpu));
  }
}

template <typename Value>
void ForOperations(const JobView& m, Family& family, Value value) {
  for (const auto& [operation, sums] : m.job.collectives) family.Add({{"kind", operation}}, value(sums));
}

// "2x NVIDIA L40S"
std::string DevicesText(const std::vector<std::string>& names) {
  std::map<std::string, size_t> kinds;
  for (const std::string& name : names) ++kinds[name];
  return absl::StrJoin(kinds, ", ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, kind.second, "x ", kind.first);
  });
}

ClientMetric::Histogram StepHistogram(const JobView& m) {
  ClientMetric::Histogram histogram{
      .sample_count = m.job.step_count, .sample_sum = Seconds(m.job.step_ns), .bucket = {}};
  for (size_t i = 0; i < analysis::kStepBoundsNs.size(); ++i) {
    histogram.bucket.push_back(
        {.cumulative_count = m.job.step_counts[i], .upper_bound = Seconds(analysis::kStepBoundsNs[i])});
  }
  histogram.bucket.push_back(
      {.cumulative_count = m.job.step_count, .upper_bound = std::numeric_limits<double>::infinity()});
  return histogram;
}

const MetricRow<JobView> kJobRows[] = {
    {"gpuprobe_job_info", kGauge, "cuda, nccl, devices", "Always 1; what the job runs on.",
     [](const JobView& m, Family& f) {
       f.Add({{"cuda", m.status.cuda}, {"nccl", m.status.nccl}, {"devices", DevicesText(m.status.devices)}},
             1.0);
     }},
    {"gpuprobe_ranks", kGauge, "", "Processes that have reported.",
     [](const JobView& m, Family& f) { f.Add({}, static_cast<uint64_t>(m.job.heard)); }},
    {"gpuprobe_world_size", kGauge, "", "Ranks that the job says it has; 0 if it does not say.",
     [](const JobView& m, Family& f) { f.Add({}, static_cast<double>(m.job.world_size)); }},
    {"gpuprobe_steps_total", kCounter, "", "Steps that every rank has seen.",
     [](const JobView& m, Family& f) { f.Add({}, m.job.steps); }},
    {"gpuprobe_step_seconds", MetricType::Histogram, "",
     "Time of steps, all ranks together: complete steps after the warm-up.",
     [](const JobView& m, Family& f) { f.Add(StepHistogram(m)); }},
    {"gpuprobe_wait_ratio", kGauge, "", "Current share of the ranks' time spent waiting for late ranks.",
     [](const JobView& m, Family& f) { f.Add({}, m.status.wait_share); }},
    {"gpuprobe_hangs", kGauge, "", "Collectives, transfers and graph launches that are stuck now.",
     [](const JobView& m, Family& f) { f.Add({}, static_cast<uint64_t>(m.status.hangs.size())); }},
    {"gpuprobe_idle_seconds", kGauge, "",
     "How long no process has begun or ended anything on a device; 0 while they work.",
     [](const JobView& m, Family& f) { f.Add({}, Seconds(m.status.idle_ns)); }},
    {"gpuprobe_collectives_total", kCounter, "kind",
     "NCCL calls of all ranks, by operation; 'several' where a kernel carries different ones.",
     [](const JobView& m, Family& f) { ForOperations(m, f, [](const auto& sums) { return sums.calls; }); }},
    {"gpuprobe_collective_bytes_total", kCounter, "kind", "Bytes that these calls were given.",
     [](const JobView& m, Family& f) { ForOperations(m, f, [](const auto& sums) { return sums.bytes; }); }},
    {"gpuprobe_collective_seconds_total", kCounter, "kind",
     "Time of their kernels, waiting for other ranks included.",
     [](const JobView& m, Family& f) {
       ForOperations(m, f, [](const auto& sums) { return Seconds(sums.time_ns); });
     }},
    {"gpuprobe_records_lost_total", kCounter, "reason",
     "Records lost, by reason; a reason without losses has no series.",
     [](const JobView& m, Family& f) {
       for (const auto& [reason, records] : m.job.lost) f.Add({{"reason", reason}}, records);
     }},
};

const MetricRow<JobView> kRankRows[] = {
    {"gpuprobe_rank_up", kGauge, kRank, "1 while the process is connected.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.connected ? 1.0 : 0.0; });
     }},
    {"gpuprobe_rank_halted", kGauge, kRank,
     "1 while the process exists and cannot run: stopped, traced or frozen.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.halted ? 1.0 : 0.0; });
     }},
    {"gpuprobe_rank_steps_total", kCounter, kRank, "Steps of the rank.",
     [](const JobView& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.steps; }); }},
    {"gpuprobe_rank_measured_steps_total", kCounter, kRank,
     "Steps that the times below cover: complete ones after the warm-up.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.measured_steps; });
     }},
    {"gpuprobe_rank_step_seconds_total", kCounter, "host, rank, kind",
     "Time of these steps, by kind: compute, exposed_communication, copy, idle. The kinds add up to the "
     "steps' time.",
     [](const JobView& m, Family& f) {
       for (const RankNumbers* each : m.ranks) {
         const RankNumbers& r = *each;
         f.Add(Of(r, "kind", "compute"), Seconds(r.compute_ns));
         f.Add(Of(r, "kind", "exposed_communication"), Seconds(r.exposed_comm_ns));
         f.Add(Of(r, "kind", "copy"), Seconds(r.copy_ns));
         f.Add(Of(r, "kind", "idle"), Seconds(r.idle_ns));
       }
     }},
    {"gpuprobe_rank_caused_wait_seconds_total", kCounter, kRank,
     "Time that the other ranks waited in collectives for this one, on average.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.caused_wait_ns); });
     }},
    {"gpuprobe_rank_waited_seconds_total", kCounter, kRank,
     "Time that this rank waited in collectives for later ones.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.waited_ns); });
     }},
    {"gpuprobe_device_memory_bytes", kGauge, "host, rank, device",
     "Device memory that driver calls of the rank hold.",
     [](const JobView& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.live_bytes; });
     }},
};

const MetricRow<JobView> kDetailRows[] = {
    {"gpuprobe_rank_kernels_total", kCounter, kRank, "Kernels that ran.",
     [](const JobView& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.kernels; }); }},
    {"gpuprobe_rank_kernel_seconds_total", kCounter, kRank,
     "Time of these kernels; kernels that overlap count twice.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.kernel_ns); });
     }},
    {"gpuprobe_rank_copies_total", kCounter, "host, rank, kind",
     "Copies, by direction: h2d, d2h, d2d, h2h, p2p.",
     [](const JobView& m, Family& f) {
       for (const RankNumbers* each : m.ranks) {
         const RankNumbers& r = *each;
         for (const analysis::CopyNumbers& c : r.copies) f.Add(Of(r, "kind", c.direction), c.copies);
       }
     }},
    {"gpuprobe_rank_copy_bytes_total", kCounter, "host, rank, kind", "Bytes of these copies.",
     [](const JobView& m, Family& f) {
       for (const RankNumbers* each : m.ranks) {
         const RankNumbers& r = *each;
         for (const analysis::CopyNumbers& c : r.copies) f.Add(Of(r, "kind", c.direction), c.bytes);
       }
     }},
    {"gpuprobe_device_memory_high_water_bytes", kGauge, "host, rank, device", "The most that it held.",
     [](const JobView& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.high_water_bytes; });
     }},
    {"gpuprobe_device_memory_capacity_bytes", kGauge, "host, rank, device",
     "Memory of that device; 0 if it is not known.",
     [](const JobView& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.capacity_bytes; });
     }},
    {"gpuprobe_gpu_clock_hertz", kGauge, "host, rank, device",
     "Clock of the multiprocessors, as NVML says; this and the next ones only where it can be asked.",
     [](const JobView& m, Family& f) {
       ForGpus(m, f, [](const GpuHealthNumbers& g) { return static_cast<double>(g.clock_mhz) * 1e6; });
     }},
    {"gpuprobe_gpu_power_watts", kGauge, "host, rank, device", "Power that the GPU takes.",
     [](const JobView& m, Family& f) { ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.power_w; }); }},
    {"gpuprobe_gpu_temperature_celsius", kGauge, "host, rank, device", "Temperature of the chip.",
     [](const JobView& m, Family& f) {
       ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.temperature_c; });
     }},
    {"gpuprobe_gpu_limited_seconds_total", kCounter, "host, rank, device, kind",
     "Time in which the GPU computed and something kept its clock down: power_cap, thermal, "
     "hardware_thermal, "
     "power_brake, hardware_slowdown, sync_boost, clocks_set.",
     [](const JobView& m, Family& f) {
       for (const RankNumbers* each : m.ranks) {
         const RankNumbers& rank = *each;
         for (const GpuHealthNumbers& gpu : rank.gpus) {
           for (const auto& [limit, ns] : gpu.limited_ns) {
             MetricLabels labels = Of(rank, "device", absl::StrCat(gpu.device));
             labels.push_back({"kind", limit});
             f.Add(std::move(labels), Seconds(ns));
           }
         }
       }
     }},
    {"gpuprobe_gpu_errors_total", kCounter, "host, rank, device",
     "Errors (Xids) that the driver reported of the GPU.",
     [](const JobView& m, Family& f) { ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.errors; }); }},
    {"gpuprobe_pinned_memory_bytes", kGauge, kRank, "Pinned host memory that the rank holds.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.pinned_bytes; });
     }},
    {"gpuprobe_records_total", kCounter, kRank, "Records received.",
     [](const JobView& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.records; }); }},
    {"gpuprobe_probe_host_seconds_total", kCounter, kRank,
     "Time of the probe on the program's threads, estimated from a sample.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.probe_host_ns); });
     }},
    {"gpuprobe_probe_cpu_seconds_total", kCounter, kRank, "CPU time of the probe's own thread.",
     [](const JobView& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.probe_cpu_ns); });
     }},
};

}  // namespace

std::span<const MetricRow<JobView>> JobRows() { return kJobRows; }
std::span<const MetricRow<JobView>> RankRows() { return kRankRows; }
std::span<const MetricRow<JobView>> RankDetailRows() { return kDetailRows; }

}  // namespace gpuprobe::http
