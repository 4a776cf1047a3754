#include "collector/http/hub_metrics.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/http/job_metrics.h"
#include "collector/http/metric_table.h"

namespace gpuprobe::http {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr size_t kMostSilent = 16;  // hosts of one job that are named

// Of a job, besides what a run says of itself.
const MetricRow<HubJobMoment> kHubJobRows[] = {
    {"gpuprobe_job_hosts", kGauge, "state",
     "Hosts of the job that record, or are silent: see gpuprobe_host_silent.",
     [](const HubJobMoment& j, Family& f) {
       f.Add({{"state", "recording"}}, static_cast<uint64_t>(j.recording_hosts));
       f.Add({{"state", "silent"}}, static_cast<uint64_t>(j.silent_hosts.size()));
     }},
    {"gpuprobe_host_silent", kGauge, "host",
     "1 for each host that has sent nothing for half a minute and has not ended; the first 16 of a job.",
     [](const HubJobMoment& j, Family& f) {
       size_t named = 0;
       for (const std::string& host : j.silent_hosts) {
         if (++named <= kMostSilent) f.Add({{"host", host}}, 1.0);
       }
     }},
    {"gpuprobe_job_data_age_seconds", kGauge, "", "Time since a host of the job sent something.",
     [](const HubJobMoment& j, Family& f) { f.Add({}, j.data_age_s); }},
    {"gpuprobe_job_read_age_seconds", kGauge, "",
     "Time since the hub began to read what it has judged last: how far it is behind what has come.",
     [](const HubJobMoment& j, Family& f) { f.Add({}, j.read_age_s); }},
    {"gpuprobe_rank_info", kGauge, "host, rank, device, UUID",
     "Always 1; a GPU on which the rank computes, by the UUID that dcgm-exporter says, too.",
     [](const HubJobMoment& j, Family& f) {
       for (const size_t place : j.ranks) {
         const analysis::RankNumbers& rank = j.numbers->ranks[place];
         for (const analysis::DeviceName& device : rank.devices) {
           f.Add({{"host", rank.host},
                  {"rank", rank.rank},
                  {"device", absl::StrCat(device.device)},
                  {"UUID", device.uuid}},
                 1.0);
         }
       }
     }},
};

const MetricRow<HubMoment> kHubRows[] = {
    {"gpuprobe_build_info", kGauge, "version", "Always 1; the hub's version.",
     [](const HubMoment& m, Family& f) {
       f.Add({{"version", m.version}}, 1.0);
     }},
    {"gpuprobe_hub_jobs", kGauge, "state", "Jobs in its directory: open ones, and those that are over.",
     [](const HubMoment& m, Family& f) {
       f.Add({{"state", "open"}}, static_cast<uint64_t>(m.jobs.size()));
       f.Add({{"state", "over"}}, static_cast<uint64_t>(m.jobs_over));
     }},
    {"gpuprobe_hub_posts_total", kCounter, "", "Posts of hosts that were read.",
     [](const HubMoment& m, Family& f) { f.Add({}, m.posts); }},
    {"gpuprobe_hub_received_bytes_total", kCounter, "", "Bytes of these posts.",
     [](const HubMoment& m, Family& f) { f.Add({}, m.received_bytes); }},
    {"gpuprobe_hub_refused_total", kCounter, "reason",
     "Requests of hosts that were refused: secret, host_rate, host_jobs, host_disk, no_room, malformed, "
     "other.",
     [](const HubMoment& m, Family& f) {
       for (const auto& [reason, count] : m.refused) f.Add({{"reason", reason}}, count);
     }},
    {"gpuprobe_hub_stored_bytes", kGauge, "", "Bytes of all jobs in its directory, measured every 30 s.",
     [](const HubMoment& m, Family& f) { f.Add({}, m.stored_bytes); }},
    {"gpuprobe_hub_fullest_host_ratio", kGauge, "",
     "Share of --host-total that the host has used which has used most.",
     [](const HubMoment& m, Family& f) { f.Add({}, m.fullest_host_share); }},
    {"gpuprobe_hub_disk_free_bytes", kGauge, "", "Free bytes of the file system that the jobs are on.",
     [](const HubMoment& m, Family& f) { f.Add({}, m.free_bytes); }},
    {"gpuprobe_hub_disk_least_free_bytes", kGauge, "",
     "With less than that, everything is refused (--least-free).",
     [](const HubMoment& m, Family& f) { f.Add({}, m.least_free_bytes); }},
    {"gpuprobe_hub_lost_gpu_seconds", kGauge, "kind",
     "GPU time that a finding has cost in all jobs that are over, estimated; causes overlap.",
     [](const HubMoment& m, Family& f) {
       for (const auto& [finding, seconds] : m.lost_gpu_seconds) f.Add({{"kind", finding}}, seconds);
     }},
    {"gpuprobe_hub_clickhouse_up", kGauge, "",
     "1 while ClickHouse takes rows; this and the next ones with --clickhouse only.",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->answers ? 1.0 : 0.0);
     }},
    {"gpuprobe_hub_rows_written_total", kCounter, "", "Rows that ClickHouse has taken.",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->written);
     }},
    {"gpuprobe_hub_rows_waiting", kGauge, "", "Rows that wait for it.",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->waiting);
     }},
    {"gpuprobe_hub_rows_lost_total", kCounter, "",
     "Rows that were dropped: the spool was full, or they were refused.",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->lost);
     }},
    {"gpuprobe_hub_spool_bytes", kGauge, "", "Disk space of the rows that wait.",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->spool_bytes);
     }},
    {"gpuprobe_hub_spool_limit_bytes", kGauge, "", "What they may take (--clickhouse-spool).",
     [](const HubMoment& m, Family& f) {
       if (m.rows.has_value()) f.Add({}, m.rows->most_spool_bytes);
     }},
    {"gpuprobe_hub_cpu_seconds_total", kCounter, "", "CPU time of the hub.",
     [](const HubMoment&, Family& f) { f.Add({}, CpuSeconds()); }},
    {"gpuprobe_hub_resident_memory_bytes", kGauge, "", "Resident memory of the hub.",
     [](const HubMoment&, Family& f) { f.Add({}, ResidentBytes()); }},
};

// What a user reads of the hub: sums over his own jobs.
bool IsOfUser(std::string_view name) {
  constexpr std::string_view kOfUser[] = {"gpuprobe_build_info", "gpuprobe_hub_jobs",
                                          "gpuprobe_hub_stored_bytes", "gpuprobe_hub_lost_gpu_seconds"};
  return std::find(std::begin(kOfUser), std::end(kOfUser), name) != std::end(kOfUser);
}

MetricLabels CommonOf(const HubJobMoment& job) {
  MetricLabels labels = {{"job", job.name}, {"attempt", absl::StrCat(job.attempt)}};
  if (!job.user.empty()) labels.push_back({"user", job.user});
  return labels;
}

// One family has the series of all jobs.
template <typename Source, typename SourceOf>
void FillForJobs(std::span<const MetricRow<Source>> rows, const HubMoment& moment, SourceOf source_of,
                 std::vector<MetricFamily>& out) {
  for (const MetricRow<Source>& row : rows) {
    Family family = row.Empty();
    for (size_t i = 0; i < moment.jobs.size(); ++i) {
      family.SetCommonLabels(CommonOf(moment.jobs[i]));
      row.fill(source_of(i), family);
    }
    out.push_back(family.Take());
  }
}

void AppendForJobs(const char* name, MetricType type, const std::string& labels, const char* help,
                   std::string& out) {
  out += MarkdownLine(name, type, absl::StrCat("job, attempt", labels.empty() ? "" : ", ", labels), help);
}

}  // namespace

std::string HubMetricsText(const HubMoment& moment, MetricsFormat format) {
  std::vector<JobView> views;
  for (const HubJobMoment& job : moment.jobs) {
    JobView& view = views.emplace_back(JobView{.status = *job.status, .job = *job.numbers, .ranks = {}});
    for (const size_t place : job.ranks) view.ranks.push_back(&job.numbers->ranks[place]);
  }
  std::vector<MetricFamily> families;
  const auto view_of = [&](size_t i) -> const JobView& { return views[i]; };
  FillForJobs(JobRows(), moment, view_of, families);
  FillForJobs(
      std::span<const MetricRow<HubJobMoment>>(kHubJobRows), moment,
      [&](size_t i) -> const HubJobMoment& { return moment.jobs[i]; }, families);
  FillForJobs(RankRows(), moment, view_of, families);
  for (const MetricRow<HubMoment>& row : kHubRows) {
    if (moment.of_user && !IsOfUser(row.name)) continue;
    Family family = row.Empty();
    row.fill(moment, family);
    families.push_back(family.Take());
  }
  return TextOf(families, format);
}

std::string HubMetricsMarkdown() {
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricRow<HubMoment>& row : kHubRows)
    out += MarkdownLine(row.name, row.type, row.labels, row.help);
  for (const auto& row : kHubJobRows) AppendForJobs(row.name, row.type, row.labels, row.help, out);
  for (const auto rows : {JobRows(), RankRows()}) {
    for (const auto& row : rows) AppendForJobs(row.name, row.type, row.labels, row.help, out);
  }
  return out;
}

}  // namespace gpuprobe::http
