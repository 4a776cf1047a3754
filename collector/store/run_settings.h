// What a run was recorded with and its report depends on: `settings.txt` in the run's directory, lines of
// NAME=VALUE.
//
// Separate from the logs because it is not of a process. A run without it was recorded with no such setting.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "collector/store/directory.h"

namespace gpuprobe::store {

struct RunSettings {
  std::string step_marker;  // as --step-marker took it; empty: none
};

// Writes nothing when there is nothing to say.
absl::Status WriteRunSettings(const Directory& directory, const RunSettings& settings);
// What is not known is ignored: it is of a newer release.
RunSettings ReadRunSettings(const std::string& directory);

}  // namespace gpuprobe::store
