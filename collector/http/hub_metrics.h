// The metrics of a hub: of itself, of each job that is not over, and of ranks of these jobs.
//
// They are a run's metrics (job_metrics.h) with the labels `job` and `attempt` before their own, and `user`
// at a hub of several users, so that the same rules and queries serve both. Which GPU a rank computes on is
// said once, by gpuprobe_rank_info, whose label UUID is spelled as dcgm-exporter spells it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/job_numbers.h"
#include "collector/analysis/live_status.h"
#include "collector/http/metrics.h"
#include "collector/http/snapshots.h"

namespace gpuprobe::http {

// One job of a hub, at one moment.
struct HubJobMoment {
  std::string name;  // any text
  std::string user;  // empty: the hub has one
  uint64_t attempt = 1;
  std::shared_ptr<const analysis::JobNumbers> numbers;
  std::shared_ptr<const analysis::LiveStatus> status;
  std::vector<size_t> ranks;  // places in numbers->ranks that have series
  size_t recording_hosts = 0;
  std::set<std::string> silent_hosts;
  double data_age_s = 0;  // since a host sent something
  double read_age_s = 0;  // since the hub read it
};

struct RowNumbers {
  uint64_t written = 0;
  uint64_t waiting = 0;
  uint64_t lost = 0;
  uint64_t spool_bytes = 0;
  uint64_t most_spool_bytes = 0;
  bool answers = true;  // the server does
};

struct HubMoment {
  std::string version;
  bool of_user = false;            // only what is one user's, and nothing of the hub itself
  std::vector<HubJobMoment> jobs;  // that are not over
  size_t jobs_over = 0;
  uint64_t posts = 0;
  uint64_t received_bytes = 0;
  std::vector<std::pair<const char*, uint64_t>> refused;  // by reason
  uint64_t stored_bytes = 0;
  uint64_t free_bytes = 0;                                       // of the disk
  uint64_t least_free_bytes = 0;                                 // that have to be left free
  double fullest_host_share = 0;                                 // of what one host may store
  std::optional<RowNumbers> rows;                                // nullopt: none are written
  std::vector<std::pair<std::string, double>> lost_gpu_seconds;  // by finding, of jobs that are over
  LazyText metrics;
  LazyText open_metrics;
};

std::string HubMetricsText(const HubMoment& moment, MetricsFormat format);

// The table, for docs/metrics.md.
std::string HubMetricsMarkdown();

}  // namespace gpuprobe::http
