#include "collector/render/json_report.h"

#include "absl/strings/str_cat.h"
#include "collector/render/json_text.h"
#include "collector/report/json.h"
#include "collector/report/schema.h"

namespace gpuprobe::render {

std::string JsonReport(const analysis::Report& report) { return JsonText(report::ToJson(report)) + "\n"; }

JsonFiles JsonReportFiles(const analysis::Report& report) {
  // Rank by rank: for a thousand, the values alone would take hundreds of megabytes.
  constexpr size_t kIndent = 4;
  std::string ranks;
  for (const analysis::RankReport& r : report.ranks)
    absl::StrAppend(&ranks, ranks.empty() ? "" : ",", "\n    ", JsonText(report::ToJson(r), kIndent));
  if (ranks.size() <= kReportBytes) {
    std::string whole = JsonReport(report);
    if (whole.size() <= kReportBytes) return {.report = std::move(whole), .ranks = ""};
  }
  nlohmann::ordered_json brief = report::ToJson(report, /*summaries=*/true);
  brief["ranks_in"] = kRanksFile;
  return {.report = JsonText(brief) + "\n",
          .ranks = absl::StrCat("{\n  \"schema_version\": ", analysis::kReportSchemaVersion,
                                ",\n  \"ranks\": [", ranks, "\n  ]\n}\n")};
}

std::string ReportSchema() { return JsonText(report::ReportSchema()) + "\n"; }

}  // namespace gpuprobe::render
