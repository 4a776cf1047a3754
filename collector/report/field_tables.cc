#include "collector/report/field_tables.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/report/report_type.h"

namespace gpuprobe::report {
namespace {

using Kind = Type::Kind;

// The object that a value consists of, and how a path goes on to it: "[]" of a list, ".<key>" of a map.
const Object* ObjectIn(const Type& type, std::string& path) {
  if (type.kind == Kind::kObject) return type.object;
  if (type.inner == nullptr) return nullptr;
  if (type.kind == Kind::kList) path += "[]";
  if (type.kind == Kind::kMap && type.inner->inner == nullptr && type.inner->object != nullptr)
    path += ".<key>";
  return ObjectIn(*type.inner, path);
}

// An object with so many fields has a table of its own.
constexpr size_t kManyFields = 8;

class TablesWriter {
 public:
  TablesWriter() {
    const Object& report = *ReportType().object;
    Count(report);
    for (const Field& field : report.fields) {
      std::string path;
      if (const Object* const object = ObjectIn(*field.type, path); object != nullptr) ++uses_[object];
    }
  }

  std::string Write() {
    WriteAll();
    return WriteAll();  // which now knows where each table is
  }

 private:
  static bool IsStatistics(const Object& object) { return object.name == "Statistics"; }
  bool HasTable(const Object& object) const {
    if (object.name.empty() || IsStatistics(object)) return false;
    const auto uses = uses_.find(&object);
    return object.fields.size() >= kManyFields || (uses != uses_.end() && uses->second > 1);
  }

  void Count(const Object& object) {
    for (const Field& field : object.fields) {
      std::string path;
      const Object* const inner = ObjectIn(*field.type, path);
      if (inner != nullptr && field.from == nullptr && ++uses_[inner] == 1) Count(*inner);
    }
  }

  // The report's own table first, then those of its parts, and of what is in them.
  std::string WriteAll() {
    std::string out;
    places_before_ = std::exchange(places_, {{ReportType().object, "report.json"}});
    std::vector<const Object*> tables = {ReportType().object};
    for (size_t i = 0; i < tables.size(); ++i) {
      const std::string where = places_[tables[i]];
      std::string rows;
      Rows(*tables[i], i == 0 ? "" : where + ".", "", rows, tables);
      absl::StrAppend(&out, i == 0 ? "" : "\n", "| field of `", where, "` | meaning |\n|---|---|\n", rows);
    }
    return out;
  }

  // `where`: from the report; `prefix`: from the table's object.
  void Rows(const Object& object, const std::string& where, const std::string& prefix, std::string& rows,
            std::vector<const Object*>& tables) {
    const Object* inherited = nullptr;
    for (const Field& field : object.fields) {
      if (field.from != nullptr && HasTable(*field.from)) {
        if (inherited != field.from)
          absl::StrAppend(&rows, "| `", prefix, "*` | the fields of `", places_before_[field.from], "` |\n");
        inherited = field.from;
        continue;
      }
      std::string path = *field.name == '\0' ? "<key>" : field.name;
      const Object* const inner =
          *field.name == '\0' ? field.type->inner->object : ObjectIn(*field.type, path);
      const bool statistics = inner != nullptr && IsStatistics(*inner);
      absl::StrAppend(&rows, "| `", prefix, path, "` | ", statistics ? "statistics: " : "", field.meaning,
                      " |\n");
      if (inner == nullptr || statistics) continue;
      if (HasTable(*inner)) {
        if (places_.emplace(inner, where + path).second) tables.push_back(inner);
      } else {
        Rows(*inner, absl::StrCat(where, path, "."), absl::StrCat(prefix, path, "."), rows, tables);
      }
    }
  }

  std::map<const Object*, int> uses_;
  std::map<const Object*, std::string> places_;  // of the objects that have a table
  std::map<const Object*, std::string> places_before_;
};

}  // namespace

std::string FieldTables() { return TablesWriter().Write(); }

}  // namespace gpuprobe::report
