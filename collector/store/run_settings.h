// Settings of a recording that its report depends on: `settings.txt` in the run's directory, lines of
// NAME=VALUE.
//
// They belong to the run, not to a process's log. A run without the file was recorded without such settings.
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
// Unknown settings are ignored: they come from a newer release.
RunSettings ReadRunSettings(const std::string& directory);

}  // namespace gpuprobe::store
