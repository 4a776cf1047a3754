#include "collector/report/types.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/report/report_type.h"

namespace gpuprobe::report {
namespace {

using Kind = Type::Kind;

constexpr size_t kLine = 150;

class TypesWriter {
 public:
  // `few`: of an entry that may be a summary, in which only some fields must be.
  std::string Of(const Type& type, bool few) {
    switch (type.kind) {
      case Kind::kBool:
        return "boolean";
      case Kind::kSigned:
      case Kind::kUnsigned:
      case Kind::kNumber:
        return "number";
      case Kind::kText:
        return "string";
      case Kind::kWord:
        return Choice(*type.words);
      case Kind::kOptional:
        return absl::StrCat(Of(*type.inner, few), " | null");
      case Kind::kList: {
        const std::string inner = Of(*type.inner, few);
        return inner.find(' ') == std::string::npos ? absl::StrCat(inner, "[]")
                                                    : absl::StrCat("(", inner, ")[]");
      }
      case Kind::kMap:
        return absl::StrCat("Record<string, ", Of(*type.inner, few), ">");
      case Kind::kObject:
        break;
    }
    const Object& object = *type.object;
    if (object.name.empty()) return absl::StrCat("{", absl::StrJoin(Fields(object, few), "; "), "}");
    std::string name = absl::StrCat(few ? "Summarised" : "", object.name);
    if (seen_.insert(name).second) Define(name, Fields(object, few));
    return object.known != nullptr ? absl::StrCat(name, " | null") : name;
  }

  std::string Take() { return std::move(out_); }

 private:
  static std::string Choice(const Words& words) {
    std::vector<std::string> out;
    for (const auto& [value, word] : words) {
      if (!word.empty()) out.push_back(absl::StrCat("'", word, "'"));
    }
    return absl::StrJoin(out, " | ");
  }

  std::vector<std::string> Fields(const Object& object, bool few) {
    std::vector<std::string> out;
    std::string entries;
    for (const Field& field : object.fields) {
      const bool inner_few = field.summarises || (few && field.in_summary);
      if (*field.name == '\0') {
        entries = Of(*field.type->inner, inner_few);
        continue;
      }
      const bool maybe_absent = field.absent_if_empty || (few && !field.in_summary);
      std::string type = Of(*field.type, inner_few);
      // What an entry of any key may be includes the fields beside it.
      if (!entries.empty()) absl::StrAppend(&entries, " | ", type);
      const bool maybe_null = field.known != nullptr || field.null_if_zero;
      out.push_back(absl::StrCat(field.name, maybe_absent ? "?: " : ": ", type, maybe_null ? " | null" : ""));
    }
    if (!entries.empty()) out.insert(out.begin(), absl::StrCat("[key: string]: ", entries, " | undefined"));
    return out;
  }

  void Define(const std::string& name, const std::vector<std::string>& fields) {
    std::string line = " ";
    std::string body;
    for (const std::string& field : fields) {
      if (line.size() > 1 && line.size() + field.size() + 2 > kLine) {
        absl::StrAppend(&body, line, "\n");
        line = " ";
      }
      absl::StrAppend(&line, " ", field, ";");
    }
    absl::StrAppend(&out_, "export interface ", name, " {\n", body, line, "\n}\n");
  }

  std::set<std::string> seen_;
  std::string out_;
};

}  // namespace

std::string ReportTypes() {
  TypesWriter writer;
  writer.Of(ReportType(), false);
  return absl::StrCat("// What report.json consists of, as `gpuprobe help report-types` prints it.\n\n",
                      writer.Take());
}

}  // namespace gpuprobe::report
