// Which steps of the command the probe records: --start-step, --stop-step, --every-steps.
//
// Separate from --step-marker, which tells the collector what a step is: here it is told to the probe, which
// knows no regular expressions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace gpuprobe::cli {

struct RecordedStepsOption {
  std::optional<uint64_t> start;
  std::optional<uint64_t> stop;
  std::optional<uint64_t> every;

  void AddTo(CLI::App& app);
  // What the command's environment needs for it, with `marker` as --step-marker has it (empty: not given).
  // InvalidArgument when the probe cannot find such steps.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Environment(
      const std::string& marker) const;
};

// GPUPROBE_STEP_MARKER for a --step-marker: "nvtx:^step" is "nvtx:step*". InvalidArgument when it is more
// than a name, or marks something that only the collector sees.
absl::StatusOr<std::string> ProbeMarker(const std::string& marker);

}  // namespace gpuprobe::cli
