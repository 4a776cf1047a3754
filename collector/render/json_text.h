// JSON as text, for people and for diff and grep: what fits stays on one line, so that a list of ranks is a
// line a rank.
#pragma once

#include <cstddef>
#include <string>

#include "nlohmann/json.hpp"

namespace gpuprobe::render {

// `indent`: of the lines after the first. Without an end of line.
std::string JsonText(const nlohmann::ordered_json& json, size_t indent = 0);

}  // namespace gpuprobe::render
