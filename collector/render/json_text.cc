#include "collector/render/json_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/text/characters.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

// A line's length; that of an element of a list, which reads like a row of a table, may be longer.
constexpr size_t kLine = 120;
constexpr size_t kElementLine = 480;

// Names come from programs that need not know UTF-8.
std::string Leaf(const Json& json) {
  return text::SafeJson(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool IsListOfPlainValues(const Json& json) {
  return json.is_array() &&
         std::none_of(json.begin(), json.end(), [](const Json& value) { return value.is_structured(); });
}

std::string Lay(const Json& json, size_t indent, size_t line) {
  if (!json.is_structured() || json.empty()) return Leaf(json);
  std::vector<std::string> parts;
  size_t length = 2 * json.size();
  bool fits = true;
  for (const auto& [key, value] : json.items()) {
    std::string part = json.is_object() ? absl::StrCat(Leaf(key), ": ") : "";
    part += Lay(value, indent + 2, json.is_array() ? kElementLine : line);
    length += part.size();
    fits = fits && part.find('\n') == std::string::npos;
    parts.push_back(std::move(part));
  }
  // A communicator's thousand members must not take a thousand lines.
  fits = fits && (indent + length <= line || IsListOfPlainValues(json));
  const std::string space(indent, ' ');
  std::string out(1, json.is_object() ? '{' : '[');
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += fits ? ", " : ",";
    if (!fits) absl::StrAppend(&out, "\n", space, "  ");
    out += parts[i];
  }
  if (!fits) absl::StrAppend(&out, "\n", space);
  out.push_back(json.is_object() ? '}' : ']');
  return out;
}

}  // namespace

std::string JsonText(const Json& json, size_t indent) {
  return Lay(json, indent, indent == 0 ? kLine : kElementLine);
}

}  // namespace gpuprobe::render
