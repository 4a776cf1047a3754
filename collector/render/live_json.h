// How a job is doing, as JSON: what a collector writes every second for `gpuprobe top`, which sorts it and
// shows parts of it.
//
// Separate from report.json, which covers the whole run and keeps its names.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "collector/analysis/live_status.h"

namespace gpuprobe::render {

// On one line, without its end.
std::string LiveJson(const analysis::LiveStatus& status);
// Reads what LiveJson wrote. Anything may stand in the file: what is missing or of another type is 0 or
// empty.
absl::StatusOr<analysis::LiveStatus> ParseLiveJson(std::string_view text);

}  // namespace gpuprobe::render
