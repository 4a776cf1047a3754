#include "collector/tables/row_text.h"

#include "nlohmann/json.hpp"

namespace gpuprobe::tables {
namespace {

// Where the JSON value at the beginning of `text` ends: before the comma or bracket that follows it.
size_t ValueEnd(std::string_view text) {
  size_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) return i;
    if (c == '"') quoted = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
  }
  return text.size();
}

}  // namespace

bool SplitRow(std::string_view row, std::vector<Field>& fields) {
  fields.clear();
  if (row.size() < 2 || row.front() != '{' || row.back() != '}') return false;
  row = row.substr(1, row.size() - 2);
  while (!row.empty()) {
    const size_t key_end = row.find('"', 1);
    if (row.front() != '"' || key_end == std::string_view::npos || row.substr(key_end + 1, 1) != ":")
      return false;
    const std::string_view rest = row.substr(key_end + 2);
    const size_t value_end = ValueEnd(rest);
    fields.push_back({row.substr(1, key_end - 1), rest.substr(0, value_end)});
    row = value_end < rest.size() ? rest.substr(value_end + 1) : std::string_view();
  }
  return true;
}

ValueType TypeOf(std::string_view value) {
  if (value.empty() || value == "null") return ValueType::kNone;
  if (value.front() == '"') return ValueType::kText;
  if (value.front() == '[' || value.front() == '{') return ValueType::kJson;
  if (value == "true" || value == "false") return ValueType::kInteger;
  return value.find_first_of(".eE") == std::string_view::npos ? ValueType::kInteger : ValueType::kReal;
}

std::string TextOf(std::string_view value) {
  if (value.empty() || value.front() != '"') return std::string(value);
  if (value.find('\\') == std::string_view::npos) return std::string(value.substr(1, value.size() - 2));
  const nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string(value);
}

}  // namespace gpuprobe::tables
