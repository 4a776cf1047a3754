// Collectives by operation, communicator and size, as JSON.
#pragma once

#include <vector>

#include "collector/analysis/report/collectives.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json CollectivesJson(const std::vector<analysis::CollectiveReport>& collectives);

}  // namespace gpuprobe::render
