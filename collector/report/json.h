// The report as JSON, and back: what was read is written as the same JSON again.
#pragma once

#include "absl/status/statusor.h"
#include "collector/report/report.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::report {

// `summaries`: few fields of each rank.
nlohmann::ordered_json ToJson(const analysis::Report& report, bool summaries = false);
nlohmann::ordered_json ToJson(const analysis::RankReport& rank);
nlohmann::ordered_json ToJson(const analysis::LastMoments& moments);
// Unknown fields are ignored, missing ones and those of another type keep their defaults.
absl::StatusOr<analysis::Report> FromJson(const nlohmann::ordered_json& json);

}  // namespace gpuprobe::report
