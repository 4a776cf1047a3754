#include "collector/render/json_text.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLine = 120;

// Names come from programs that need not know UTF-8.
std::string Leaf(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string Lay(const Json& json, size_t indent) {
  if (!json.is_structured() || json.empty()) return Leaf(json);
  std::vector<std::string> parts;
  size_t length = 2 * json.size();
  bool fits = true;
  for (const auto& [key, value] : json.items()) {
    std::string part = json.is_object() ? absl::StrCat(Leaf(key), ": ") : "";
    part += Lay(value, indent + 2);
    length += part.size();
    fits = fits && part.find('\n') == std::string::npos;
    parts.push_back(std::move(part));
  }
  fits = fits && indent + length <= kLine;
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

std::string JsonText(const Json& json, size_t indent) { return Lay(json, indent); }

}  // namespace gpuprobe::render
