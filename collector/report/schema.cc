#include "collector/report/schema.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "collector/report/report_type.h"

namespace gpuprobe::report {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Type::Kind;

Json OrNull(Json schema) {
  if (schema.contains("$ref")) return {{"anyOf", {std::move(schema), {{"type", "null"}}}}};
  if (schema["type"].is_string()) schema["type"] = {schema["type"], "null"};
  return schema;
}

class SchemaWriter {
 public:
  // `few`: of an entry that may be a summary, in which only some fields must be.
  Json Of(const Type& type, bool few = false) {
    switch (type.kind) {
      case Kind::kBool:
        return {{"type", "boolean"}};
      case Kind::kSigned:
      case Kind::kUnsigned:
        return {{"type", "integer"}};
      case Kind::kNumber:
        return {{"type", "number"}};
      case Kind::kText:
      case Kind::kWord:
        return {{"type", "string"}};
      case Kind::kOptional:
        return OrNull(Of(*type.inner, few));
      case Kind::kList:
        return {{"type", "array"}, {"items", Of(*type.inner, few)}};
      case Kind::kMap:
        return {{"type", "object"}, {"additionalProperties", Of(*type.inner, few)}};
      case Kind::kObject:
        break;
    }
    const Object& object = *type.object;
    if (object.name.empty()) return Fields(object, few);
    const std::string name = absl::StrCat(few ? "Summarised" : "", object.name);
    if (seen_.insert(name).second) {
      defined_[name] = nullptr;  // keeps its place
      defined_[name] = Fields(object, few);
    }
    Json reference = {{"$ref", absl::StrCat("#/$defs/", name)}};
    return object.known != nullptr ? OrNull(std::move(reference)) : reference;
  }

  Json Fields(const Object& object, bool few) {
    Json schema = {{"type", "object"}};
    Json required = Json::array();
    for (const Field& field : object.fields) {
      const bool inner_few = field.summarises || (few && field.in_summary);
      if (*field.name == '\0') {
        schema["additionalProperties"] = Of(*field.type->inner, inner_few);
        continue;
      }
      Json shape = Of(*field.type, inner_few);
      if (field.known != nullptr || field.null_if_zero) shape = OrNull(std::move(shape));
      shape["description"] = field.meaning;
      schema["properties"][field.name] = std::move(shape);
      if (!field.absent_if_empty && (!few || field.in_summary)) required.push_back(field.name);
    }
    schema["required"] = std::move(required);
    return schema;
  }

  Json Defined() { return std::move(defined_); }

 private:
  std::set<std::string> seen_;
  Json defined_ = Json::object();
};

}  // namespace

Json ReportSchema() {
  SchemaWriter writer;
  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"title", absl::StrCat("gpuprobe report.json, schema_version ", analysis::kReportSchemaVersion)}};
  schema.update(writer.Fields(*ReportType().object, false));
  schema["$defs"] = writer.Defined();
  return schema;
}

}  // namespace gpuprobe::report
