#include "collector/render/html_report.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/analysis/work/driver_calls.h"
#include "collector/render/steps.h"
#include "collector/render/table.h"
#include "collector/report/report.h"
#include "collector/report/words.h"

namespace gpuprobe::render {
namespace {

using analysis::Bytes;
using analysis::Count;
using analysis::Duration;

constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--ink:#1c2128;--soft:#57606a;--line:#d5dae0;--paper:#fff;--panel:#f5f7f9;--warn:#9a6700;--bad:#b42318;--good:#1a7f37}
@media(prefers-color-scheme:dark){:root{--ink:#e2e6ea;--soft:#9aa4ae;--line:#343b43;--paper:#14181c;--panel:#1d2227;--warn:#d9a13b;--bad:#f0786c;--good:#57b96b}}
body{margin:0 auto;max-width:76rem;padding:2rem 1.25rem 4rem;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.25rem;line-height:1.35;margin:0 0 .25rem}h2{font-size:1rem;margin:2.25rem 0 .5rem}
p{margin:.25rem 0}.soft{color:var(--soft)}
.finding{background:var(--panel);border-left:4px solid var(--soft);margin:.75rem 0;padding:.6rem 1rem}
.finding.warning{border-color:var(--warn)}.finding.error{border-color:var(--bad)}.finding.fine{border-color:var(--good)}
.finding b{font-weight:600}.finding code{color:var(--soft);font-size:.85em}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;width:100%}
th,td{padding:.3rem .7rem;text-align:right;white-space:pre;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:600}td.l,th.l{text-align:left}tbody tr:hover{background:var(--panel)}
tr.named td{background:var(--panel)}tr.named td:first-child{box-shadow:inset 4px 0 var(--warn);font-weight:600}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.25rem;margin:.5rem 0}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
)css";

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string FindingHtml(const analysis::Finding& f) {
  const char* kind = f.severity == analysis::Severity::kError     ? " error"
                     : f.severity == analysis::Severity::kWarning ? " warning"
                     : f.evidence.empty()                         ? " fine"
                                                                  : "";
  std::string out = absl::StrCat("<div class=\"finding", kind, "\"><p><b>", Escape(f.statement), "</b></p>");
  if (!f.evidence.empty()) absl::StrAppend(&out, "<p>", Escape(f.evidence), "</p>");
  if (!f.advice.empty())
    absl::StrAppend(&out, "<p>", Escape(f.advice), " <code>", Escape(f.id), "</code></p>");
  return out + "</div>\n";
}

std::string TableHtml(const Table& table) {
  std::string out = absl::StrCat("<section id=\"", table.id, "\"><h2>", Escape(table.title),
                                 "</h2><div class=\"wide\"><table><thead><tr>");
  const auto tag = [&](size_t i) { return table.left[i] ? " class=\"l\">" : ">"; };
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&out, "<th scope=\"col\"", tag(i), Escape(table.columns[i]), "</th>");
  }
  absl::StrAppend(&out, "</tr></thead><tbody>\n");
  for (size_t at = 0; at < table.rows.size(); ++at) {
    const std::vector<std::string>& row = table.rows[at];
    absl::StrAppend(&out, table.marked.count(at) > 0 ? "<tr class=\"named\">" : "<tr>");
    for (size_t i = 0; i < row.size(); ++i) absl::StrAppend(&out, "<td", tag(i), Escape(row[i]), "</td>");
    absl::StrAppend(&out, "</tr>\n");
  }
  absl::StrAppend(&out, "</tbody></table></div>");
  if (!table.note.empty()) absl::StrAppend(&out, "<p class=\"soft\">", Escape(table.note), "</p>");
  return out + "</section>\n";
}

std::string HostsText(const std::vector<std::string>& hosts) {
  constexpr size_t kAll = 16;
  if (hosts.size() <= kAll) return absl::StrJoin(hosts, ", ");
  return absl::StrCat(hosts.size(), " hosts: ", absl::StrJoin(hosts.begin(), hosts.begin() + kAll / 2, ", "),
                      " and ", hosts.size() - kAll / 2, " more");
}

// A few devices one by one. Of many, those that are alike in one line, and those of a kind of which there are
// few with their places: a device that differs is the one to find.
std::vector<std::string> DeviceLines(const std::vector<analysis::DeviceCondition>& devices) {
  constexpr size_t kAll = 8;
  constexpr size_t kFew = 4;
  std::vector<std::string> lines;
  const auto what = [](const analysis::DeviceCondition& d) {
    return absl::StrCat(d.name.empty() ? "unknown model" : d.name,
                        d.memory_bytes > 0 ? absl::StrCat(", ", Bytes(d.memory_bytes)) : "");
  };
  std::map<std::string, std::vector<const analysis::DeviceCondition*>> kinds;
  for (const analysis::DeviceCondition& d : devices) {
    if (devices.size() <= kAll)
      lines.push_back(absl::StrCat(d.host, "/", d.ordinal, ": ", what(d), ", ", d.uuid));
    kinds[what(d)].push_back(&d);
  }
  if (devices.size() <= kAll) return lines;
  for (const auto& [kind, alike] : kinds) {
    std::set<std::string> hosts;
    for (const analysis::DeviceCondition* d : alike) hosts.insert(d->host);
    std::string line = absl::StrCat(Count(alike.size()), "x ", kind);
    if (hosts.size() > 1 || alike.size() <= kFew)
      absl::StrAppend(&line, ", on ", Count(hosts.size()), hosts.size() == 1 ? " host" : " hosts");
    if (alike.size() <= kFew) {
      absl::StrAppend(&line, ": ",
                      absl::StrJoin(alike, ", ", [](std::string* out, const analysis::DeviceCondition* d) {
                        absl::StrAppend(out, d->host, "/", d->ordinal);
                      }));
    }
    lines.push_back(line);
  }
  return lines;
}

std::string ConditionsHtml(const analysis::Report& report) {
  const analysis::Conditions& c = report.conditions;
  const analysis::Trust& t = report.trust;
  std::string out = "<section id=\"conditions\"><h2>Conditions and trust</h2><dl>";
  const auto item = [&](const char* what, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&out, "<dt>", what, "</dt><dd>", Escape(value), "</dd>");
  };
  item("command", absl::StrJoin(c.command_line, " "));
  item("job", c.job);
  item("started",
       absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixNanos(static_cast<int64_t>(c.start_ns)),
                        absl::UTCTimeZone()));
  item("duration", Duration(static_cast<double>(c.duration_ns)));
  item("hosts", HostsText(c.hosts));
  for (const std::string& line : DeviceLines(c.devices)) item("devices", line);
  item("CUDA driver", c.cuda_driver);
  item("CUDA runtime", c.cuda_runtime);
  item("CUPTI", c.cupti);
  item("NCCL", c.nccl);
  item("probe, collector", absl::StrCat(c.probe_version, ", ", c.collector_version));
  item("records", absl::StrCat(Count(t.records), ", lost ", Count(t.lost_total)));
  for (const auto& [reason, records] : t.lost) item("lost", absl::StrCat(reason, ": ", Count(records)));
  item("GPU times from", report::Word(t.timing_source));
  for (const analysis::CuptiDefect& defect : t.cupti_defects)
    item("not recorded because of CUPTI", absl::StrCat(defect.left_out, " (", defect.defect, ")"));
  item("own cost",
       absl::StrCat(CostText(t.cost), t.cost.own_fraction.has_value() ? " of the processes' time" : ""));
  if (t.cost.memory_peak_bytes > 0) {
    item("memory of the probe", absl::StrCat("at most ", Bytes(t.cost.memory_peak_bytes),
                                             " in a process, limit ", Bytes(t.cost.memory_limit_bytes)));
  }
  if (t.device_records_unattributed > 0) {
    item("unattributed",
         absl::StrCat(Count(t.device_records_unattributed),
                      " GPU records without a known launch: counted in totals, not in phases"));
  }
  return out + "</dl></section>\n";
}

}  // namespace

std::string HtmlReport(const analysis::Report& report) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>gpuprobe report</title><style>",
      kStyle, "</style></head><body>\n", PlainReport(report), "</body></html>\n");
}

std::string PlainReport(const analysis::Report& report) {
  std::string out = absl::StrCat("<h1>", Escape(Headline(report)), "</h1><p class=\"soft\">",
                                 Escape(ConditionsLine(report)), "</p>\n");
  for (const analysis::Finding& f : report.findings) absl::StrAppend(&out, FindingHtml(f));
  const std::string utilisation = UtilisationLine(report);
  std::string line =
      utilisation.empty() ? "" : absl::StrCat("<p id=\"utilisation\">", Escape(utilisation), "</p>\n");
  if (const std::string driver = analysis::DriverCallsSentence(report); !driver.empty())
    absl::StrAppend(&line, "<p>", Escape(driver), "</p>\n");
  // Below the steps, where there are any.
  if (!report.steps.has_value()) absl::StrAppend(&out, line);
  for (const Table& table : TablesOf(report))
    absl::StrAppend(&out, TableHtml(table), table.id == kStepsTable ? line : "");
  return out + ConditionsHtml(report);
}

}  // namespace gpuprobe::render
