// Which steps of the command the probe records: --level, --start-step, --stop-step, --every-steps.
//
// The probe decides, inside the program, by the same --step-marker by which the collector finds steps; it
// sees ranges and counts calls, but knows no kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/model/steps/step_marker.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

struct RecordedStepsOption {
  std::optional<uint64_t> start;
  std::optional<uint64_t> stop;
  std::optional<uint64_t> every;
  std::string level;  // empty: not given

  void AddTo(CLI::App& app);
  // The variables for the command's environment. `marker`: the value of --step-marker (none: not given).
  // InvalidArgument when the probe cannot find such steps.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Environment(
      const model::StepMarker& marker) const;
};

// InvalidArgument if the probe, which knows ranges and counts calls, cannot find the steps of this marker.
absl::Status CheckProbeMarker(const model::StepMarker& marker);

}  // namespace gpuprobe::cli
