// A run that is being recorded: which one is meant, and what its collector last wrote about it.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/analysis/live_status.h"

namespace gpuprobe::cli {

inline constexpr char kRuns[] = "gpuprobe-runs";

// Whether a collector wrote into the directory lately.
bool IsLive(const std::string& directory);
// The run under gpuprobe-runs/ that was written last, of those that are being recorded; empty: none is.
std::string NewestLiveRun();
// What the collector wrote last, as JSON.
absl::StatusOr<std::string> ReadLiveFile(const std::string& directory);
absl::StatusOr<analysis::LiveStatus> ReadLiveStatus(const std::string& directory);
// Why a directory that is not live has nothing to show.
absl::Status WhyNotLive(const std::string& directory);

}  // namespace gpuprobe::cli
