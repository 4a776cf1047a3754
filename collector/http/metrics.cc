#include "collector/http/metrics.h"

#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/http/job_metrics.h"
#include "collector/http/metric_table.h"

namespace gpuprobe::http {
namespace {

using prometheus::MetricFamily;

const MetricRow<CollectorNumbers> kCollectorRows[] = {
    {"gpuprobe_build_info", kGauge, "version", "Always 1; the collector's version.",
     [](const CollectorNumbers& c, Family& f) {
       f.Add({{"version", c.version}}, 1.0);
     }},
    {"gpuprobe_collector_clients", kGauge, "", "Processes that are connected.",
     [](const CollectorNumbers& c, Family& f) { f.Add({}, static_cast<uint64_t>(c.clients)); }},
    {"gpuprobe_collector_clients_dropped_total", kCounter, "",
     "Processes that were turned away because they broke the protocol.",
     [](const CollectorNumbers& c, Family& f) { f.Add({}, c.clients_dropped); }},
    {"gpuprobe_collector_received_bytes_total", kCounter, "", "Bytes received from processes.",
     [](const CollectorNumbers& c, Family& f) { f.Add({}, c.received_bytes); }},
    {"gpuprobe_collector_unwritten_frames_total", kCounter, "",
     "Batches that were counted but could not be written: the disk is full or gone.",
     [](const CollectorNumbers& c, Family& f) { f.Add({}, c.unwritten_frames); }},
    {"gpuprobe_collector_cpu_seconds_total", kCounter, "", "CPU time of the collector.",
     [](const CollectorNumbers&, Family& f) { f.Add({}, CpuSeconds()); }},
    {"gpuprobe_collector_resident_memory_bytes", kGauge, "", "Resident memory of the collector.",
     [](const CollectorNumbers&, Family& f) { f.Add({}, ResidentBytes()); }},
};

const MetricRow<ServerNumbers> kServerRows[] = {
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

template <typename Source>
void Fill(std::span<const MetricRow<Source>> rows, const Source& source, std::vector<MetricFamily>& out) {
  for (const MetricRow<Source>& row : rows) {
    Family family = row.Empty();
    row.fill(source, family);
    out.push_back(family.Take());
  }
}

template <typename Source>
void AppendMarkdown(std::span<const MetricRow<Source>> rows, std::string& out) {
  for (const MetricRow<Source>& row : rows) out += MarkdownLine(row.name, row.type, row.labels, row.help);
}

}  // namespace

std::string MetricsText(const Moment& moment, MetricsFormat format) {
  JobView view{.status = moment.status, .job = moment.job, .ranks = {}};
  for (const analysis::RankNumbers& rank : moment.job.ranks) view.ranks.push_back(&rank);
  std::vector<MetricFamily> families;
  for (const auto rows : {JobRows(), RankRows(), RankDetailRows()}) Fill(rows, view, families);
  Fill(std::span<const MetricRow<CollectorNumbers>>(kCollectorRows), moment.collector, families);
  return TextOf(families, format);
}

std::string ServerMetricsText(const ServerNumbers& numbers, MetricsFormat format) {
  std::vector<MetricFamily> families;
  Fill(std::span<const MetricRow<ServerNumbers>>(kServerRows), numbers, families);
  return TextOf(families, format);
}

std::string MetricsMarkdown() {
  std::string out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n";
  for (const auto rows : {JobRows(), RankRows(), RankDetailRows()}) AppendMarkdown(rows, out);
  AppendMarkdown(std::span<const MetricRow<CollectorNumbers>>(kCollectorRows), out);
  AppendMarkdown(std::span<const MetricRow<ServerNumbers>>(kServerRows), out);
  return out;
}

}  // namespace gpuprobe::http
