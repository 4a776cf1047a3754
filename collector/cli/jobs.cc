#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/output.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/http/fetch.h"
#include "collector/render/text_layout.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

using Json = nlohmann::json;

constexpr char kJobs[] = "jobs";
constexpr char kHere[] = "http://127.0.0.1:9460";
constexpr double kNsPerS = 1e9;

std::string TimeText(double gpu_seconds) {
  return gpu_seconds > 0 ? analysis::Span(gpu_seconds * kNsPerS) : "-";
}

std::string BeganText(uint64_t ns) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixNanos(static_cast<int64_t>(ns)),
                          absl::UTCTimeZone());
}

std::vector<std::string> JobCells(const Json& job) {
  double lost = 0;
  const Json& findings = job.at("findings");
  for (const Json& finding : findings) lost = std::max(lost, finding.at("lost_gpu_seconds").get<double>());
  // Of a job that runs, nothing is judged yet.
  const bool is_over = !job.at("ended_ns").is_null();
  std::string finding;
  if (!findings.empty()) {
    finding = findings.front().at("id");
  } else if (!is_over) {
    finding = job.at("finding");
  }
  return {job.at("name"),
          absl::StrCat(job.at("attempt").get<uint64_t>()),
          job.at("state"),
          BeganText(job.at("begun_ns")),
          absl::StrCat(job.at("ranks").get<uint64_t>()),
          job.at("step_ns").is_null() ? "-" : analysis::Duration(job.at("step_ns").get<double>()),
          TimeText(job.at("gpu_seconds")),
          TimeText(lost),
          finding.empty() ? "-" : finding};
}

std::string JobsText(const Json& list, const render::Screen& screen) {
  const render::Layout layout(screen);
  render::Table jobs{.id = "jobs",
                     .title = "",
                     .columns = {"job", "attempt", "state", "began (UTC)", "ranks", "step", "GPU time",
                                 "lost", "first finding"},
                     .left = {true, false, true, true, false, false, false, false, true},
                     .rows = {},
                     .note = ""};
  for (const Json& job : list.at("jobs")) jobs.rows.push_back(JobCells(job));
  std::string text = layout.Lay(jobs);
  render::Table offenders{.id = "offenders",
                          .title = "GPUs at fault in several jobs",
                          .columns = {"GPU", "host", "findings", "jobs", "GPU time lost"},
                          .left = {true, true, true, false, false},
                          .rows = {},
                          .note = ""};
  for (const Json& gpu : list.at("repeat_offenders")) {
    offenders.rows.push_back({gpu.at("gpu_uuid"), gpu.at("host"),
                              absl::StrJoin(gpu.at("findings").get<std::vector<std::string>>(), ", "),
                              absl::StrCat(gpu.at("jobs").get<uint64_t>()),
                              TimeText(gpu.at("lost_gpu_seconds"))});
  }
  if (!offenders.rows.empty()) absl::StrAppend(&text, "\n", offenders.title, "\n", layout.Lay(offenders));
  render::Table lost{
      .id = "lost",
      .title = "GPU time lost, by cause",
      .columns = {"finding", "jobs", "GPU time", "of all"},
      .left = {true, false, false, false},
      .rows = {},
      .note =
          "Estimated: the cost per step, times the steps and GPUs. Causes overlap, so they do not add up."};
  const double all = list.at("gpu_seconds");
  for (const Json& cause : list.at("lost")) {
    const double seconds = cause.at("lost_gpu_seconds");
    lost.rows.push_back({cause.at("finding"), absl::StrCat(cause.at("jobs").get<uint64_t>()),
                         TimeText(seconds), all > 0 ? absl::StrFormat("%.1f %%", 100 * seconds / all) : "-"});
  }
  if (!lost.rows.empty()) absl::StrAppend(&text, "\n", lost.title, "\n", layout.Lay(lost));
  return text;
}

}  // namespace

int JobsMain(const Arguments& arguments) {
  CLI::App app(
      "Lists a hub's jobs, which GPUs were at fault in several of them, and what each cause has cost",
      "gpuprobe jobs");
  std::string url = kHere;
  bool json = false;
  ColorOption color;
  app.add_option("URL", url,
                 absl::StrCat("where the hub serves its page (gpuprobe hub --http) [", kHere, "]"))
      ->check(NotEmpty());
  app.add_flag("--json", json, "print JSON for tools (docs/http-api.md)");
  color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (!http::IsUrl(url)) return Fail(kJobs, absl::StrCat("'", url, "' is no URL, such as ", kHere), kUsage);
  const absl::StatusOr<std::string> answer = http::Fetch(url, "/api/jobs");
  if (!answer.ok()) return Fail(kJobs, answer.status(), kFailed);
  if (json) {
    Print(text::PrintableLines(*answer));
    return kDone;
  }
  const Json list = Json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  try {
    if (list.at("jobs").empty()) {
      Print(absl::StrCat(
          "no job yet; on every host of a job: GPUPROBE_HUB=", list.at("hub").get<std::string>(), "\n"));
    } else {
      PrintForPeople(JobsText(list, ScreenOf(STDOUT_FILENO, color.no_color)));
    }
  } catch (const Json::exception&) {
    return Fail(kJobs, absl::StrCat(url, " is not the page of a hub of this release"), kFailed);
  }
  return kDone;
}

}  // namespace gpuprobe::cli
