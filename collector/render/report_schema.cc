#include "collector/render/report_schema.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/render/full_report.h"
#include "collector/render/json_report.h"
#include "collector/render/json_text.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::render {
namespace {

using Json = nlohmann::ordered_json;

// Ranks from which on report.json has only a summary of each.
constexpr size_t kManyRanks = 400;

// What the values seen at one place have in common.
class Shape {
 public:
  void See(const Json& value) {
    types_.insert(TypeName(value));
    if (value.is_array()) {
      for (const Json& item : value) Inner(items_).See(item);
    }
    if (!value.is_object()) return;
    ++objects_;
    for (const auto& [key, member] : value.items()) {
      if (key == kAnyKey) {
        Inner(others_).See(member);
        continue;
      }
      Member& known = MemberAt(key);
      ++known.seen;
      Inner(known.shape).See(member);
    }
  }

  Json Schema() const {
    Json schema;
    // A whole number is a number, too.
    std::set<std::string> types = types_;
    if (types.contains("number")) types.erase("integer");
    if (types.size() == 1) {
      schema["type"] = *types.begin();
    } else {
      schema["type"] = types;
    }
    if (items_ != nullptr) schema["items"] = items_->Schema();
    if (!members_.empty()) {
      Json required = Json::array();
      for (const auto& [key, member] : members_) {
        schema["properties"][key] = member.shape->Schema();
        if (member.seen == objects_) required.push_back(key);
      }
      if (!required.empty()) schema["required"] = required;
    }
    if (others_ != nullptr) schema["additionalProperties"] = others_->Schema();
    return schema;
  }

 private:
  struct Member {
    size_t seen = 0;
    std::unique_ptr<Shape> shape;
  };

  static const char* TypeName(const Json& value) {
    if (value.is_null()) return "null";
    if (value.is_boolean()) return "boolean";
    if (value.is_number_float()) return "number";
    if (value.is_number()) return "integer";
    if (value.is_string()) return "string";
    return value.is_array() ? "array" : "object";
  }
  static Shape& Inner(std::unique_ptr<Shape>& shape) {
    if (shape == nullptr) shape = std::make_unique<Shape>();
    return *shape;
  }
  Member& MemberAt(const std::string& key) {
    const auto found =
        std::find_if(members_.begin(), members_.end(), [&](const auto& m) { return m.first == key; });
    if (found != members_.end()) return found->second;
    return members_.emplace_back(key, Member{}).second;
  }

  std::set<std::string> types_;
  size_t objects_ = 0;
  std::vector<std::pair<std::string, Member>> members_;  // in the order in which they are written
  std::unique_ptr<Shape> items_;
  std::unique_ptr<Shape> others_;
};

}  // namespace

std::string ReportSchema() {
  analysis::Report many = FullReport();
  many.ranks.resize(kManyRanks, many.ranks.front());
  Shape shape;
  for (const std::string& example :
       {JsonReport(FullReport()), JsonReport(BareReport()), JsonReport(SparseReport()), JsonReport({}),
        JsonReportFiles(many).report})
    shape.See(Json::parse(example));
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", absl::StrCat("gpuprobe report.json, schema_version ", kReportSchemaVersion)}};
  schema.update(shape.Schema());
  return JsonText(schema) + "\n";
}

}  // namespace gpuprobe::render
