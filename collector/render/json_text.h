// Formats JSON for people, diff and grep: values that fit stay on one line, so that a list of ranks has one
// line per rank.
#pragma once

#include <cstddef>
#include <string>

#include "nlohmann/json.hpp"

namespace gpuprobe::render {

// `indent`: of the lines after the first. Without an end of line.
std::string JsonText(const nlohmann::ordered_json& json, size_t indent = 0);

}  // namespace gpuprobe::render
