// What tables of metrics are made of: a row says a metric's name, kind, labels and meaning, and how it is
// filled in from a source. Texts in both formats, and the table of docs/metrics.md, derive from the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/http/metrics.h"
#include "prometheus/metric_family.h"

namespace gpuprobe::http {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

inline constexpr auto kCounter = prometheus::MetricType::Counter;
inline constexpr auto kGauge = prometheus::MetricType::Gauge;

inline constexpr double kNsPerSecond = 1e9;
inline double Seconds(uint64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

// One metric while it is filled in.
class Family {
 public:
  Family(const char* name, const char* help, prometheus::MetricType type) : family_{name, help, type, {}} {}

  // Labels that all series have from now on, before their own.
  void SetCommonLabels(MetricLabels labels) { common_ = std::move(labels); }
  // Of counters that are there already, the sum counts; of gauges, the last; of histograms, the first.
  void Add(MetricLabels labels, double value);
  void Add(MetricLabels labels, uint64_t value) { Add(std::move(labels), static_cast<double>(value)); }
  void Add(prometheus::ClientMetric::Histogram histogram);
  prometheus::MetricFamily Take() { return std::move(family_); }

 private:
  prometheus::MetricFamily family_;
  MetricLabels common_;
  std::map<std::string, size_t> metrics_;  // by their labels
};

template <typename Source>
struct MetricRow {
  const char* name;
  prometheus::MetricType type;
  const char* labels;
  const char* help;
  void (*fill)(const Source&, Family&);

  Family Empty() const { return {name, help, type}; }
};

std::string TextOf(const std::vector<prometheus::MetricFamily>& families, MetricsFormat format);
// "| `name` | counter | labels | meaning |"
std::string MarkdownLine(const char* name, prometheus::MetricType type, const std::string& labels,
                         const char* help);

// Of this process.
double CpuSeconds();
double ResidentBytes();

}  // namespace gpuprobe::http
