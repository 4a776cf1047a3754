#include "collector/http/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/http/open_metrics.h"
#include "collector/text/characters.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace gpuprobe::http {
namespace {

using analysis::DeviceMemoryNumbers;
using analysis::GpuHealthNumbers;
using analysis::RankNumbers;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

constexpr double kSecond = 1e9;

double Seconds(uint64_t ns) { return static_cast<double>(ns) / kSecond; }

// One metric while it is filled in.
class Family {
 public:
  Family(const char* name, const char* help, MetricType type) : family_{name, help, type, {}} {}

  void Add(Labels labels, double value) {
    // Clients' names: a scraper drops everything for one byte that is not UTF-8, or a series that is there
    // twice.
    std::string key;
    for (ClientMetric::Label& label : labels) {
      label.value = text::Printable(label.value);
      absl::StrAppend(&key, label.value, "\n");
    }
    const auto [at, is_new] = metrics_.try_emplace(std::move(key), family_.metric.size());
    if (is_new) family_.metric.emplace_back().label = std::move(labels);
    ClientMetric& metric = family_.metric[at->second];
    if (!is_new && family_.type == MetricType::Counter) value += metric.counter.value;
    (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  }
  void Add(Labels labels, uint64_t value) { Add(std::move(labels), static_cast<double>(value)); }
  void Add(ClientMetric::Histogram histogram) {
    family_.metric.emplace_back().histogram = std::move(histogram);
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  MetricFamily family_;
  std::map<std::string, size_t> metrics_;  // by their labels
};

Labels Of(const RankNumbers& rank) { return {{"host", rank.host}, {"rank", rank.rank}}; }
Labels Of(const RankNumbers& rank, const char* name, std::string value) {
  return {{"host", rank.host}, {"rank", rank.rank}, {name, std::move(value)}};
}

template <typename Value>
void ForRanks(const Moment& m, Family& family, Value value) {
  for (const RankNumbers& rank : m.job.ranks) family.Add(Of(rank), value(rank));
}

template <typename Value>
void ForDevices(const Moment& m, Family& family, Value value) {
  for (const RankNumbers& rank : m.job.ranks) {
    for (const DeviceMemoryNumbers& memory : rank.memory)
      family.Add(Of(rank, "device", absl::StrCat(memory.device)), value(memory));
  }
}

template <typename Value>
void ForGpus(const Moment& m, Family& family, Value value) {
  for (const RankNumbers& rank : m.job.ranks) {
    for (const GpuHealthNumbers& gpu : rank.gpus)
      family.Add(Of(rank, "device", absl::StrCat(gpu.device)), value(gpu));
  }
}

template <typename Value>
void ForOperations(const Moment& m, Family& family, Value value) {
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

ClientMetric::Histogram StepHistogram(const Moment& m) {
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

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  unsigned long size = 0;
  unsigned long resident = 0;
  const int fields = std::fscanf(file, "%lu %lu", &size, &resident);
  std::fclose(file);
  return fields == 2 ? static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) : 0;
}

template <typename Source>
struct Row {
  const char* name;
  MetricType type;
  const char* labels;
  const char* help;
  void (*fill)(const Source&, Family&);
};

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;
constexpr char kRank[] = "host, rank";

const Row<Moment> kRows[] = {
    {"gpuprobe_build_info", kGauge, "version", "Always 1; the collector's version.",
     [](const Moment& m, Family& f) {
       f.Add({{"version", m.collector.version}}, 1.0);
     }},
    {"gpuprobe_job_info", kGauge, "cuda, nccl, devices", "Always 1; what the job runs on.",
     [](const Moment& m, Family& f) {
       f.Add({{"cuda", m.status.cuda}, {"nccl", m.status.nccl}, {"devices", DevicesText(m.status.devices)}},
             1.0);
     }},
    {"gpuprobe_ranks", kGauge, "", "Processes that have reported.",
     [](const Moment& m, Family& f) { f.Add({}, static_cast<uint64_t>(m.job.heard)); }},
    {"gpuprobe_world_size", kGauge, "", "Ranks that the job says it has; 0 if it does not say.",
     [](const Moment& m, Family& f) { f.Add({}, static_cast<double>(m.job.world_size)); }},
    {"gpuprobe_steps_total", kCounter, "", "Steps that every rank has seen.",
     [](const Moment& m, Family& f) { f.Add({}, m.job.steps); }},
    {"gpuprobe_step_seconds", MetricType::Histogram, "",
     "Time of steps, all ranks together: complete steps after the warm-up.",
     [](const Moment& m, Family& f) { f.Add(StepHistogram(m)); }},
    {"gpuprobe_wait_ratio", kGauge, "", "Current share of the ranks' time spent waiting for late ranks.",
     [](const Moment& m, Family& f) { f.Add({}, m.status.wait_share); }},
    {"gpuprobe_hangs", kGauge, "", "Collectives, transfers and graph launches that are stuck now.",
     [](const Moment& m, Family& f) { f.Add({}, static_cast<uint64_t>(m.status.hangs.size())); }},
    {"gpuprobe_idle_seconds", kGauge, "",
     "How long no process has begun or ended anything on a device; 0 while they work.",
     [](const Moment& m, Family& f) { f.Add({}, Seconds(m.status.idle_ns)); }},
    {"gpuprobe_collectives_total", kCounter, "kind",
     "NCCL calls of all ranks, by operation; 'several' where a kernel carries different ones.",
     [](const Moment& m, Family& f) { ForOperations(m, f, [](const auto& sums) { return sums.calls; }); }},
    {"gpuprobe_collective_bytes_total", kCounter, "kind", "Bytes that these calls were given.",
     [](const Moment& m, Family& f) { ForOperations(m, f, [](const auto& sums) { return sums.bytes; }); }},
    {"gpuprobe_collective_seconds_total", kCounter, "kind",
     "Time of their kernels, waiting for other ranks included.",
     [](const Moment& m, Family& f) {
       ForOperations(m, f, [](const auto& sums) { return Seconds(sums.time_ns); });
     }},
    {"gpuprobe_records_lost_total", kCounter, "reason",
     "Records lost, by reason; a reason without losses has no series.",
     [](const Moment& m, Family& f) {
       for (const auto& [reason, records] : m.job.lost) f.Add({{"reason", reason}}, records);
     }},

    {"gpuprobe_rank_up", kGauge, kRank, "1 while the process is connected.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.connected ? 1.0 : 0.0; });
     }},
    {"gpuprobe_rank_halted", kGauge, kRank,
     "1 while the process exists and cannot run: stopped, traced or frozen.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.halted ? 1.0 : 0.0; });
     }},
    {"gpuprobe_rank_steps_total", kCounter, kRank, "Steps of the rank.",
     [](const Moment& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.steps; }); }},
    {"gpuprobe_rank_measured_steps_total", kCounter, kRank,
     "Steps that the times below cover: complete ones after the warm-up.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return r.measured_steps; });
     }},
    {"gpuprobe_rank_step_seconds_total", kCounter, "host, rank, kind",
     "Time of these steps, by kind: compute, exposed_communication, copy, idle. The kinds add up to the "
     "steps' time.",
     [](const Moment& m, Family& f) {
       for (const RankNumbers& r : m.job.ranks) {
         f.Add(Of(r, "kind", "compute"), Seconds(r.compute_ns));
         f.Add(Of(r, "kind", "exposed_communication"), Seconds(r.exposed_comm_ns));
         f.Add(Of(r, "kind", "copy"), Seconds(r.copy_ns));
         f.Add(Of(r, "kind", "idle"), Seconds(r.idle_ns));
       }
     }},
    {"gpuprobe_rank_caused_wait_seconds_total", kCounter, kRank,
     "Time that the other ranks waited in collectives for this one, on average.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.caused_wait_ns); });
     }},
    {"gpuprobe_rank_waited_seconds_total", kCounter, kRank,
     "Time that this rank waited in collectives for later ones.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.waited_ns); });
     }},
    {"gpuprobe_rank_kernels_total", kCounter, kRank, "Kernels that ran.",
     [](const Moment& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.kernels; }); }},
    {"gpuprobe_rank_kernel_seconds_total", kCounter, kRank,
     "Time of these kernels; kernels that overlap count twice.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.kernel_ns); });
     }},
    {"gpuprobe_rank_copies_total", kCounter, "host, rank, kind",
     "Copies, by direction: h2d, d2h, d2d, h2h, p2p.",
     [](const Moment& m, Family& f) {
       for (const RankNumbers& r : m.job.ranks) {
         for (const analysis::CopyNumbers& c : r.copies) f.Add(Of(r, "kind", c.direction), c.copies);
       }
     }},
    {"gpuprobe_rank_copy_bytes_total", kCounter, "host, rank, kind", "Bytes of these copies.",
     [](const Moment& m, Family& f) {
       for (const RankNumbers& r : m.job.ranks) {
         for (const analysis::CopyNumbers& c : r.copies) f.Add(Of(r, "kind", c.direction), c.bytes);
       }
     }},
    {"gpuprobe_device_memory_bytes", kGauge, "host, rank, device",
     "Device memory that driver calls of the rank hold.",
     [](const Moment& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.live_bytes; });
     }},
    {"gpuprobe_device_memory_high_water_bytes", kGauge, "host, rank, device", "The most that it held.",
     [](const Moment& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.high_water_bytes; });
     }},
    {"gpuprobe_device_memory_capacity_bytes", kGauge, "host, rank, device",
     "Memory of that device; 0 if it is not known.",
     [](const Moment& m, Family& f) {
       ForDevices(m, f, [](const DeviceMemoryNumbers& d) { return d.capacity_bytes; });
     }},
    {"gpuprobe_gpu_clock_hertz", kGauge, "host, rank, device",
     "Clock of the multiprocessors, as NVML says; this and the next ones only where it can be asked.",
     [](const Moment& m, Family& f) {
       ForGpus(m, f, [](const GpuHealthNumbers& g) { return static_cast<double>(g.clock_mhz) * 1e6; });
     }},
    {"gpuprobe_gpu_power_watts", kGauge, "host, rank, device", "Power that the GPU takes.",
     [](const Moment& m, Family& f) { ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.power_w; }); }},
    {"gpuprobe_gpu_temperature_celsius", kGauge, "host, rank, device", "Temperature of the chip.",
     [](const Moment& m, Family& f) {
       ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.temperature_c; });
     }},
    {"gpuprobe_gpu_limited_seconds_total", kCounter, "host, rank, device, kind",
     "Time in which the GPU computed and something kept its clock down: power_cap, thermal, "
     "hardware_thermal, "
     "power_brake, hardware_slowdown, sync_boost, clocks_set.",
     [](const Moment& m, Family& f) {
       for (const RankNumbers& rank : m.job.ranks) {
         for (const GpuHealthNumbers& gpu : rank.gpus) {
           for (const auto& [limit, ns] : gpu.limited_ns) {
             Labels labels = Of(rank, "device", absl::StrCat(gpu.device));
             labels.push_back({"kind", limit});
             f.Add(std::move(labels), Seconds(ns));
           }
         }
       }
     }},
    {"gpuprobe_gpu_errors_total", kCounter, "host, rank, device",
     "Errors (Xids) that the driver reported of the GPU.",
     [](const Moment& m, Family& f) { ForGpus(m, f, [](const GpuHealthNumbers& g) { return g.errors; }); }},
    {"gpuprobe_pinned_memory_bytes", kGauge, kRank, "Pinned host memory that the rank holds.",
     [](const Moment& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.pinned_bytes; }); }},

    {"gpuprobe_records_total", kCounter, kRank, "Records received.",
     [](const Moment& m, Family& f) { ForRanks(m, f, [](const RankNumbers& r) { return r.records; }); }},
    {"gpuprobe_probe_host_seconds_total", kCounter, kRank,
     "Time of the probe on the program's threads, estimated from a sample.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.probe_host_ns); });
     }},
    {"gpuprobe_probe_cpu_seconds_total", kCounter, kRank, "CPU time of the probe's own thread.",
     [](const Moment& m, Family& f) {
       ForRanks(m, f, [](const RankNumbers& r) { return Seconds(r.probe_cpu_ns); });
     }},
    {"gpuprobe_collector_clients", kGauge, "", "Processes that are connected.",
     [](const Moment& m, Family& f) { f.Add({}, static_cast<uint64_t>(m.collector.clients)); }},
    {"gpuprobe_collector_clients_dropped_total", kCounter, "",
     "Processes that were turned away because they broke the protocol.",
     [](const Moment& m, Family& f) { f.Add({}, m.collector.clients_dropped); }},
    {"gpuprobe_collector_received_bytes_total", kCounter, "", "Bytes received from processes.",
     [](const Moment& m, Family& f) { f.Add({}, m.collector.received_bytes); }},
    {"gpuprobe_collector_unwritten_frames_total", kCounter, "",
     "Batches that were counted but could not be written: the disk is full or gone.",
     [](const Moment& m, Family& f) { f.Add({}, m.collector.unwritten_frames); }},
    {"gpuprobe_collector_cpu_seconds_total", kCounter, "", "CPU time of the collector.",
     [](const Moment&, Family& f) { f.Add({}, CpuSeconds()); }},
    {"gpuprobe_collector_resident_memory_bytes", kGauge, "", "Resident memory of the collector.",
     [](const Moment&, Family& f) { f.Add({}, ResidentBytes()); }},
};

const Row<ServerNumbers> kServerRows[] = {
    {"gpuprobe_http_viewers", kGauge, "", "Pages that follow the run.",
     [](const ServerNumbers& s, Family& f) { f.Add({}, static_cast<uint64_t>(s.viewers)); }},
    {"gpuprobe_http_requests_total", kCounter, "code", "Requests that were answered, by class of status.",
     [](const ServerNumbers& s, Family& f) {
       for (size_t i = 2; i < s.answers.size(); ++i) f.Add({{"code", absl::StrCat(i, "xx")}}, s.answers[i]);
     }},
    {"gpuprobe_http_refused_total", kCounter, "",
     "Connections that were refused because there were too many.",
     [](const ServerNumbers& s, Family& f) { f.Add({}, s.refused); }},
    {"gpuprobe_page_builds_total", kCounter, "", "How often the page was built.",
     [](const ServerNumbers& s, Family& f) { f.Add({}, s.documents_made); }},
    {"gpuprobe_page_build_seconds_total", kCounter, "", "Processor time spent building it.",
     [](const ServerNumbers& s, Family& f) { f.Add({}, Seconds(s.documents_ns)); }},
};

template <typename Source, size_t kSize>
std::string TextOf(const Source& source, const Row<Source> (&rows)[kSize], MetricsFormat format) {
  std::vector<MetricFamily> families;
  for (const Row<Source>& row : rows) {
    Family family(row.name, row.help, row.type);
    row.fill(source, family);
    families.push_back(family.Take());
  }
  return format == MetricsFormat::kOpenMetrics ? OpenMetricsText(families)
                                               : prometheus::TextSerializer().Serialize(families);
}

template <typename Source, size_t kSize>
void AppendMarkdown(const Row<Source> (&rows)[kSize], std::string& out) {
  for (const Row<Source>& row : rows) {
    const char* type = row.type == MetricType::Counter ? "counter"
                       : row.type == MetricType::Gauge ? "gauge"
                                                       : "histogram";
    absl::StrAppend(&out, "| `", row.name, "` | ", type, " | ", row.labels, " | ", row.help, " |\n");
  }
}

}  // namespace

std::string MetricsText(const Moment& moment, MetricsFormat format) { return TextOf(moment, kRows, format); }

std::string ServerMetricsText(const ServerNumbers& numbers, MetricsFormat format) {
  return TextOf(numbers, kServerRows, format);
}

std::string MetricsMarkdown() {
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  AppendMarkdown(kRows, out);
  AppendMarkdown(kServerRows, out);
  return out;
}

}  // namespace gpuprobe::http
