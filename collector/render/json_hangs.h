// Hangs as JSON.
#pragma once

#include <vector>

#include "collector/analysis/hang.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {

nlohmann::ordered_json HangsJson(const std::vector<analysis::Hang>& hangs);
nlohmann::ordered_json PastHangsJson(const std::vector<analysis::PastHang>& hangs);

}  // namespace gpuprobe::render
