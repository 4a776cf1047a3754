// The conditions of a run, and how far to trust its numbers, as JSON.
#pragma once

#include "collector/analysis/report/conditions.h"
#include "collector/analysis/report/trust.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json ConditionsJson(const analysis::Conditions& c);
nlohmann::ordered_json TrustJson(const analysis::Trust& t);

}  // namespace gpuprobe::render
