// The runs that were recorded below a folder, and which one is meant where none is named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/render/text_layout.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {

// Directories that hold a run, those written last first.
std::vector<std::string> RunsIn(const std::string& folder);
// The one below gpuprobe-runs/ that was written last. NotFound: there is none.
absl::StatusOr<std::string> NewestRun();

struct RunSummary {
  enum class State { kRecording, kReported, kUnfinished };

  std::string directory;
  State state = State::kUnfinished;
  // The rest as its report says; absent: it has none that can be read.
  std::optional<uint64_t> start_ns;
  std::optional<uint64_t> duration_ns;
  std::optional<uint64_t> ranks;
  std::optional<uint64_t> steps;
  std::optional<double> step_ns;  // mean
  std::string finding;            // the first one's id
};
RunSummary SummaryOf(const std::string& directory);

std::string RunsText(const std::vector<RunSummary>& runs, const render::Screen& screen);
nlohmann::ordered_json RunsJson(const std::vector<RunSummary>& runs);

}  // namespace gpuprobe::cli
