#include "collector/http/metric_table.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "collector/http/open_metrics.h"
#include "collector/text/characters.h"
#include "prometheus/text_serializer.h"

namespace gpuprobe::http {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

namespace {

// Clients' names: a scraper drops everything for one byte that is not UTF-8, or a series that is there twice.
// `key`: what series of one family differ by.
MetricLabels PrintableLabels(MetricLabels labels, std::string& key) {
  for (ClientMetric::Label& label : labels) {
    label.value = text::Printable(label.value);
    absl::StrAppend(&key, label.value, "\n");
  }
  return labels;
}

}  // namespace

void Family::Add(MetricLabels labels, double value) {
  labels.insert(labels.begin(), common_.begin(), common_.end());
  std::string key;
  labels = PrintableLabels(std::move(labels), key);
  const auto [at, is_new] = metrics_.try_emplace(std::move(key), family_.metric.size());
  if (is_new) family_.metric.emplace_back().label = std::move(labels);
  ClientMetric& metric = family_.metric[at->second];
  if (!is_new && family_.type == MetricType::Counter) value += metric.counter.value;
  (family_.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

void Family::Add(ClientMetric::Histogram histogram) {
  std::string key;
  MetricLabels labels = PrintableLabels(common_, key);
  if (!metrics_.try_emplace(std::move(key), family_.metric.size()).second) return;
  ClientMetric& metric = family_.metric.emplace_back();
  metric.label = std::move(labels);
  metric.histogram = std::move(histogram);
}

std::string TextOf(const std::vector<MetricFamily>& families, MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics ? OpenMetricsText(families)
                                               : prometheus::TextSerializer().Serialize(families);
}

std::string MarkdownLine(const char* name, MetricType type, const std::string& labels, const char* help) {
  const char* kind = type == MetricType::Counter ? "counter"
                     : type == MetricType::Gauge ? "gauge"
                                                 : "histogram";
  return absl::StrCat("| `", name, "` | ", kind, " | ", labels, " | ", help, " |\n");
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

}  // namespace gpuprobe::http
