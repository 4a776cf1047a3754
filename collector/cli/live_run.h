// A run that is being recorded: which one is meant, and how it does.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/analysis/live_status.h"
#include "collector/recording/whole_job.h"

namespace gpuprobe::cli {

inline constexpr char kRuns[] = "gpuprobe-runs";

// The run under gpuprobe-runs/ that was written last, of those that are being recorded; empty: none is.
std::string NewestLiveRun();
// Why a directory that is not live has nothing to show.
absl::Status WhyNotLive(const std::string& directory);

// One host's run, as its collector describes it, that of several hosts, which is read from their logs, or one
// that is served, of any host.
class LiveRun {
 public:
  // `place`: a directory, or the URL of a served run.
  explicit LiveRun(std::string place);

  // What is new. NotFound: it is not being recorded.
  absl::StatusOr<analysis::LiveStatus> Look();
  // The same as JSON, as of the last look.
  absl::StatusOr<std::string> Json() const;

 private:
  std::string directory_;  // or the URL
  std::optional<recording::WholeJob> whole_;
  std::string served_;  // the last status of a URL
};

}  // namespace gpuprobe::cli
