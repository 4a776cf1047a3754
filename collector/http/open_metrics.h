// OpenMetrics 1.0, the text that newer scrapers ask for, from the same families as Prometheus' text.
//
// It is stricter: a counter's family has no "_total", which its samples have; units are given; constant facts
// are of kind "info"; values of "le" have a decimal point; the end is marked, so that a truncated answer is
// noticed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prometheus/metric_family.h"

namespace gpuprobe::http {

inline constexpr char kOpenMetricsType[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// Without the end, so that further families can follow.
std::string OpenMetricsText(const std::vector<prometheus::MetricFamily>& families);
inline constexpr char kOpenMetricsEnd[] = "# EOF\n";

// Whether the Accept header of a request prefers OpenMetrics 1.0 to Prometheus' text.
bool PrefersOpenMetrics(std::string_view accept);

}  // namespace gpuprobe::http
