// Settings of a recording that its report, or who watches it, depends on: `settings.txt` in the run's
// directory, lines of NAME=VALUE.
//
// They belong to the run, not to a process's log. A run without the file was recorded without such settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "collector/store/directory.h"

namespace gpuprobe::store {

inline constexpr char kSettingsFile[] = "settings.txt";

struct RunSettings {
  std::string step_marker;               // as --step-marker took it; empty: none
  std::optional<uint64_t> hang_after_s;  // that a collective may wait; none: the default
};

// Writes nothing when there is nothing to say.
absl::Status WriteRunSettings(const Directory& directory, const RunSettings& settings);
// Unknown settings are ignored: they come from a newer release.
RunSettings ReadRunSettings(const std::string& directory);

}  // namespace gpuprobe::store
