// The metrics: one table of names, kinds, labels and meanings, from which /metrics in both
// formats, `gpuprobe help metrics` and docs/metrics.md are made.
//
// Names follow Prometheus: base units, _total for counters. Labels are bounded: ranks (analysis/job_numbers.h
// says how many), devices, and fixed words; never names of kernels or of anything that the program chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collector/http/snapshots.h"

namespace gpuprobe::http {

// About the server and what it makes; these change between moments.
struct ServerNumbers {
  static constexpr size_t kClasses = 6;  // of status codes, by their first digit
  size_t viewers = 0;
  std::array<uint64_t, kClasses> answers{};
  uint64_t refused = 0;  // connections, because there were too many
  uint64_t documents_made = 0;
  uint64_t documents_ns = 0;
};

enum class MetricsFormat : uint8_t {
  kPrometheus,   // its text, version 0.0.4
  kOpenMetrics,  // version 1.0, without the end (open_metrics.h)
};
inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsText(const Moment& moment, MetricsFormat format);
std::string ServerMetricsText(const ServerNumbers& numbers, MetricsFormat format);

// The table, for docs/metrics.md.
std::string MetricsMarkdown();

}  // namespace gpuprobe::http
