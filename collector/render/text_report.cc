#include "collector/render/text_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/report.h"
#include "collector/render/steps.h"
#include "collector/render/table.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::render {
namespace {

std::string Findings(const analysis::Report& report) {
  std::string out;
  int number = 0;
  for (const analysis::Finding& f : report.findings) {
    // Findings that are merely worth knowing are not counted as problems.
    const bool bare = f.severity == analysis::Severity::kInfo;
    absl::StrAppend(&out, Wrap(bare ? " -  " : absl::StrFormat("%2d  ", ++number), "    ", f.statement));
    if (!f.evidence.empty()) absl::StrAppend(&out, Wrap("    ", "    ", f.evidence));
    if (!f.advice.empty())
      absl::StrAppend(&out, Wrap("    > ", "      ", absl::StrCat(f.advice, " [", f.id, "]")));
  }
  return out;
}

}  // namespace

std::string HangBlock(const analysis::Hang& hang) {
  return absl::StrCat(Wrap("HANG  ", "      ", analysis::HangStatement(hang)),
                      Wrap("      ", "      ", analysis::HangEvidence(hang)),
                      Wrap("      > ", "        ", analysis::HangAdvice(hang)));
}

std::string TextReport(const analysis::Report& report, const std::string& page) {
  std::string out = Printable(Headline(report)) + "\n";
  const std::string conditions = ConditionsLine(report);
  if (!conditions.empty()) absl::StrAppend(&out, Wrap("          ", "          ", conditions));
  absl::StrAppend(&out, "\n", Findings(report));
  const std::string utilisation = UtilisationLine(report);
  const std::string line = utilisation.empty() ? "" : Wrap(" ", "   ", utilisation);
  // Below the steps, where there are any.
  if (!line.empty() && !report.steps.has_value()) absl::StrAppend(&out, "\n", line);
  for (const Table& table : TablesOf(report)) {
    absl::StrAppend(&out, "\n", Lay(table), table.id == kStepsTable ? line : "");
  }
  if (!page.empty()) absl::StrAppend(&out, "\n page: ", Printable(page), "\n");
  return out;
}

}  // namespace gpuprobe::render
