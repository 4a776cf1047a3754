#include "collector/render/text_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/hangs/hang.h"
#include "collector/analysis/work/driver_calls.h"
#include "collector/render/steps.h"
#include "collector/render/table.h"
#include "collector/render/text_layout.h"
#include "collector/report/report.h"
#include "collector/text/characters.h"

namespace gpuprobe::render {
namespace {

Emphasis EmphasisOf(analysis::Severity severity) {
  if (severity == analysis::Severity::kInfo) return Emphasis::kNone;
  return severity == analysis::Severity::kError ? Emphasis::kError : Emphasis::kWarning;
}

std::string Findings(const analysis::Report& report, const Layout& layout) {
  std::string out;
  int number = 0;
  for (const analysis::Finding& f : report.findings) {
    // Findings that are merely worth knowing are not counted as problems.
    const bool bare = f.severity == analysis::Severity::kInfo;
    absl::StrAppend(&out, layout.Wrap(bare ? " -  " : absl::StrFormat("%2d  ", ++number), "    ", f.statement,
                                      EmphasisOf(f.severity)));
    if (!f.evidence.empty()) absl::StrAppend(&out, layout.Wrap("    ", "    ", f.evidence));
    if (!f.advice.empty())
      absl::StrAppend(&out, layout.Wrap("    > ", "      ", absl::StrCat(f.advice, " [", f.id, "]")));
  }
  return out;
}

// What level calls knows of the whole run.
std::string CallTrace(const analysis::Report& report, const Layout& layout) {
  if (!report.call_trace.has_value()) return "";
  const analysis::CallTraceReport& trace = *report.call_trace;
  std::string out =
      absl::StrCat("\n", layout.Wrap(" ", "   ", absl::StrCat("Level calls: ", trace.statement),
                                     trace.late_rank.has_value() ? Emphasis::kWarning : Emphasis::kNone));
  for (const analysis::RaisedDetail& raised : trace.raises) {
    absl::StrAppend(&out, layout.Wrap("   ", "     ",
                                      absl::StrCat("Recorded in full, because ", raised.reason, ": ",
                                                   text::Printable(raised.outcome))));
  }
  absl::StrAppend(
      &out, layout.Wrap("   ", "     ",
                        "Not recorded at this level: kernels, copies, sends and receives, replayed "
                        "collectives, and why a GPU is idle. What else is said here is of captured steps."));
  return out;
}

}  // namespace

std::string HangBlock(const analysis::Hang& hang, const Layout& layout) {
  return absl::StrCat(layout.Wrap(layout.In(Emphasis::kError, hang.idle ? "IDLE" : "HANG") + "  ", "      ",
                                  analysis::HangStatement(hang), Emphasis::kError),
                      layout.Wrap("      ", "      ", analysis::HangEvidence(hang)),
                      layout.Wrap("      > ", "        ", analysis::HangAdvice(hang)));
}

std::string TextReport(const analysis::Report& report, const std::string& page, const Layout& layout) {
  std::string out = layout.FirstLine("          ", Headline(report));
  const std::string conditions = ConditionsLine(report);
  if (!conditions.empty()) absl::StrAppend(&out, layout.Wrap("          ", "          ", conditions));
  absl::StrAppend(&out, "\n", Findings(report, layout), CallTrace(report, layout));
  const std::string utilisation = UtilisationLine(report);
  std::string line = utilisation.empty() ? "" : layout.Wrap(" ", "   ", utilisation);
  if (const std::string driver = analysis::DriverCallsSentence(report); !driver.empty())
    absl::StrAppend(&line, layout.Wrap(" ", "   ", driver));
  // Below the steps, where there are any.
  if (!line.empty() && !report.steps.has_value()) absl::StrAppend(&out, "\n", line);
  for (const Table& table : TablesOf(report)) {
    absl::StrAppend(&out, "\n", layout.Lay(table), table.id == kStepsTable ? line : "");
  }
  if (!page.empty()) absl::StrAppend(&out, PageLine(page));
  return out;
}

std::string PageLine(const std::string& page) {
  return absl::StrCat("\n page: ", text::Printable(page), "\n");
}

}  // namespace gpuprobe::render
