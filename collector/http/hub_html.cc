#include "collector/http/hub_html.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/text/characters.h"

namespace gpuprobe::http {

std::string InHtml(const std::string& text) {
  return absl::StrReplaceAll(text::Printable(text),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string InQuery(const std::string& text) {
  std::string query;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      query.push_back(c);
    } else {
      absl::StrAppendFormat(&query, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return query;
}

std::string TimeText(uint64_t ns) {
  if (ns == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(static_cast<int64_t>(ns)),
                          absl::UTCTimeZone());
}

std::string GpuTime(double seconds) {
  constexpr double kNsPerS = 1e9;
  return seconds > 0 ? analysis::Span(seconds * kNsPerS) : "-";
}

std::string ChangeText(double share) {
  constexpr double kMuch = 0.1;
  return std::abs(share) < kMuch ? absl::StrFormat("%+.1f %%", share * 100)
                                 : absl::StrFormat("%+.0f %%", share * 100);
}

std::string Head(const std::vector<Column>& columns) {
  std::string cells;
  for (const Column& column : columns)
    absl::StrAppend(&cells, "<th scope=\"col\"", column.is_text ? " class=\"text\"" : "", ">", column.name,
                    "</th>");
  return cells;
}

std::string Section(const char* id, const char* title, const std::string& columns, const std::string& rows,
                    const std::string& note, const std::string& lead) {
  return absl::StrCat("<section><h2 id=\"", id, "\">", title, "</h2>\n", lead,
                      "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-labelledby=\"", id,
                      "\"><table>\n<thead><tr>", columns, "</tr></thead>\n<tbody>\n", rows,
                      "</tbody></table></div>\n", note, "</section>\n");
}

std::string HubPage(const std::string& hub, const std::string& count, const std::string& main) {
  const std::string name = InHtml(hub);
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light "
      "dark\"><title>gpuprobe hub ",
      name,
      "</title><link rel=\"stylesheet\" href=\"/page.css\"><script src=\"/jobs.js\" defer></script></head>",
      "<body>\n<header><h1>gpuprobe hub ", name, "</h1><span id=\"count\">", count,
      "</span><nav><a href=\"/\">Jobs</a> <a href=\"/hosts\">Hosts and GPUs</a></nav></header>\n<main>", main,
      "</main>\n</body></html>\n");
}

}  // namespace gpuprobe::http
