#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/build_report.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/http_option.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/page/page.h"
#include "collector/recording/hang_watch.h"
#include "collector/recording/live_page.h"
#include "collector/recording/recorder.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::cli {
namespace {

constexpr char kReport[] = "report";

std::string HtmlPage(const model::JobModel& job, const analysis::Report& report,
                     const std::string& directory) {
  const absl::StatusOr<store::RunFiles> files = store::ListRun(directory);
  return page::Page(job, report, files.ok() ? *files : store::RunFiles{});
}

// Until a signal.
int Serve(http::Server& server, const model::JobModel& job, const analysis::Report& report,
          const std::string& directory) {
  const absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kReport, signals.status(), kFailed);
  const absl::StatusOr<store::RunFiles> files = store::ListRun(directory);
  SayError(absl::StrCat("serving ", directory, " on ", server.Url(), ", until Ctrl-C"));
  recording::ServeFinished(server, job, report, files.ok() ? *files : store::RunFiles{}, signals->fd());
  return kDone;
}

}  // namespace

int ReportMain(const Arguments& arguments) {
  CLI::App app("Reports on a recorded run, from its logs", "gpuprobe report");
  std::string directory;
  bool json = false;
  bool html = false;
  bool steps = false;
  bool ranks = false;
  app.add_option("DIR", directory, "run directory")->required();
  app.add_flag("--json", json, "print report.json");
  app.add_flag("--ranks", ranks, "with --json: include full detail for every rank, even beyond 1 MB")
      ->needs("--json");
  app.add_flag("--steps", steps,
               "with --json: like --ranks, and include each of the last 512 steps of every rank")
      ->needs("--json");
  app.add_flag("--html", html, "print one self-contained HTML page")->excludes("--json");
  RankOptions rank_options;
  rank_options.AddTo(app);
  StepMarkerOption marker;
  marker.AddTo(app);
  ModelWorkOption work;
  work.AddTo(app);
  ColorOption color;
  color.AddTo(app);
  HttpOption serve;
  serve.AddTo(app, "--serve", "serve the page, metrics and a JSON API");
  if (const auto code = Parse(app, arguments)) return *code;

  if (serve.address.has_value() && (json || html))
    return Fail(kReport, "--serve prints no report: leave out --json and --html", kUsage);
  const absl::StatusOr<std::unique_ptr<http::Server>> server = serve.Listen();
  if (!server.ok()) return Fail(kReport, server.status(), kFailed);
  std::optional<Progress> progress(std::in_place, std::vector{directory});
  marker.TakeFrom(directory);
  model::JobModel job;
  job.SetStepMarker(marker.marker);
  const absl::StatusOr<store::Replayed> replayed = store::Replay(directory, job);
  if (!replayed.ok()) return Fail(kReport, replayed.status(), kFailed);
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  input.work = work.work;
  input.step_records = steps;
  input.hang_after_ns = rank_options.after_ns();
  input.link_peak = rank_options.link_peak;
  input.detail_since_ns = replayed->detail_since_ns;
  for (const store::Damage& damage : replayed->damages) {
    input.damaged_logs.push_back(DamageLine(damage));
    Fail(kReport, absl::StrCat(directory, ": ", DamageLine(damage)), kFailed);
  }
  const analysis::Report report = analysis::BuildReport(job, input);
  if (*server != nullptr) {
    progress.reset();
    return Serve(**server, job, report, directory);
  }
  const std::string page_path = directory + "/report.html";
  const bool whole = ranks || steps;
  const std::string text =
      json   ? (whole ? render::JsonReport(report) : render::JsonReportFiles(report).report)
      : html ? HtmlPage(job, report, directory)
             : render::TextReport(report, std::filesystem::exists(page_path) ? page_path : "",
                                  render::Layout(ScreenOf(STDOUT_FILENO, color.no_color)));
  PrintForPeople(text);
  return kDone;
}

}  // namespace gpuprobe::cli
