// Values as every part of report.json writes them: unknown ones are null.
#pragma once

#include <optional>
#include <string>

#include "nlohmann/json.hpp"

namespace gpuprobe::render {

template <typename T>
nlohmann::ordered_json OrNull(const std::optional<T>& value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

inline nlohmann::ordered_json TextOrNull(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
}

}  // namespace gpuprobe::render
