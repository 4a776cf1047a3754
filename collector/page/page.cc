#include "collector/page/page.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "collector/page/assets.h"
#include "collector/page/page_data.h"
#include "collector/render/comparison.h"
#include "collector/render/html_report.h"
#include "collector/render/json_report.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::page {
namespace {

// As the content of a script element: nothing in it can end the element or begin a comment.
std::string Embedded(const char* id, const std::string& json) {
  return absl::StrCat("<script type=\"application/json\" id=\"", id, "\">",
                      absl::StrReplaceAll(json, {{"<", "\\u003c"}}), "</script>\n");
}

// One file with the program, its styles and `documents`. `plain`: for a browser without scripts.
std::string SelfContained(const std::string& attribute, const std::string& plain,
                          const std::vector<std::string>& documents) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"", attribute,
      "><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
      "'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\"><title>gpuprobe report</title><style>",
      std::string(kStyle), "</style></head><body>\n<noscript>", plain, "</noscript>\n",
      absl::StrJoin(documents, ""), "<script>", std::string(kProgram), "</script>\n</body></html>\n");
}

}  // namespace

std::string Page(const model::JobModel& job, const analysis::Report& report, const store::RunFiles& files) {
  if (kProgram.empty()) return render::HtmlReport(report);
  return SelfContained("", render::PlainReport(report),
                       {Embedded("report-data", render::JsonReportFiles(report).report),
                        Embedded("page-data", PageData(job, report, files))});
}

std::string ComparisonPage(const ComparedJob& a, const ComparedJob& b,
                           const analysis::Comparison& comparison) {
  const std::string text = render::ComparisonText(comparison, a.name, b.name, render::Layout());
  const std::string plain =
      absl::StrCat("<pre>", absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}}), "</pre>");
  if (kProgram.empty())
    return absl::StrCat("<!doctype html>\n<html lang=\"en\"><body>", plain, "</body></html>\n");
  return SelfContained(
      " data-comparison", plain,
      {Embedded("comparison-data", render::ComparisonJson(comparison, a.name, b.name)),
       Embedded("run-a", StepsData(a.job, a.report)), Embedded("run-b", StepsData(b.job, b.report))});
}

std::string LivePage() {
  std::string out =
      "<!doctype html>\n<html lang=\"en\" data-live><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">"
      "<title>gpuprobe</title><link rel=\"stylesheet\" href=\"/page.css\"></head><body>\n";
  if (kProgram.empty()) {
    return absl::StrCat(out,
                        "<p>This gpuprobe was built without the page (esbuild, node-d3). The report is in <a "
                        "href=\"/api/report\">/api/report</a>.</p></body></html>\n");
  }
  return absl::StrCat(out,
                      "<noscript>The page needs scripts. The report is in <a "
                      "href=\"/api/report\">/api/report</a>.</noscript>\n<script "
                      "src=\"/page.js\"></script>\n</body></html>\n");
}

std::string_view LiveProgram() { return kProgram; }
std::string_view LiveStyle() { return kStyle; }

}  // namespace gpuprobe::page
