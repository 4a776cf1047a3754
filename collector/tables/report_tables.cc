#include "collector/tables/report_tables.h"

#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::tables {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::function<void(const std::string& row)>;

// SQLite takes 2,000 columns. Reports have some hundred, unless a program's names make them more.
constexpr size_t kMaxColumns = 1800;

bool IsListOfObjects(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

// A name for a column: some keys are names that a program or a library chose.
std::string Path(const std::string& path, std::string key) {
  for (char& c : key) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') c = '_';
  }
  return path.empty() ? key : absl::StrCat(path, "_", key);
}

// The single values of `object` and of the objects in it, in `row`; lists of objects are put into `lists`,
// with their path.
void Flatten(const Json& object, const std::string& path, Json& row,
             std::vector<std::pair<std::string, const Json*>>& lists) {
  for (const auto& [key, value] : object.items()) {
    if (row.size() >= kMaxColumns) return;
    const std::string name = Path(path, key);
    if (value.is_object()) {
      Flatten(value, name, row, lists);
    } else if (IsListOfObjects(value)) {
      lists.emplace_back(name, &value);
    } else if (value.is_array()) {
      row[name] = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    } else {
      row[name] = value;
    }
  }
}

void Write(const Json& object, const std::string& table, const Json& owner, const Row& emit) {
  Json row = {{"kind", table}};
  row.update(owner);
  std::vector<std::pair<std::string, const Json*>> lists;
  Flatten(object, "", row, lists);
  emit(text::SafeJson(row.dump(-1, ' ', false, Json::error_handler_t::replace)));
  Json inner = owner;
  if (object.contains("rank")) inner["rank"] = object["rank"];
  for (const auto& [path, list] : lists) {
    for (const Json& item : *list) Write(item, absl::StrCat(table, "_", path), inner, emit);
  }
}

}  // namespace

void ReportRows(const std::string& report_json, const Row& row) {
  const Json report = Json::parse(report_json, nullptr, false);
  if (report.is_object()) Write(report, "report", Json::object(), row);
}

}  // namespace gpuprobe::tables
