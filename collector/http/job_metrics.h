// Metrics of a job and its ranks, as a run serves them, and as a hub serves them of each of its jobs.
#pragma once

#include <span>
#include <vector>

#include "collector/analysis/job_numbers.h"
#include "collector/analysis/live_status.h"
#include "collector/http/metric_table.h"

namespace gpuprobe::http {

// What outlives it: one look at a job.
struct JobView {
  const analysis::LiveStatus& status;
  const analysis::JobNumbers& job;
  std::vector<const analysis::RankNumbers*> ranks;  // that have series of their own
};

std::span<const MetricRow<JobView>> JobRows();
std::span<const MetricRow<JobView>> RankRows();
// What only a run says of its ranks: a hub has too many of them.
std::span<const MetricRow<JobView>> RankDetailRows();

}  // namespace gpuprobe::http
