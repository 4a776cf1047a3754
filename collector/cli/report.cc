#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "collector/analysis/build_report.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/given_run.h"
#include "collector/cli/http_option.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/one_step.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/query_tables.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/http/fetch.h"
#include "collector/page/page.h"
#include "collector/recording/hang_watch.h"
#include "collector/recording/last_moments.h"
#include "collector/recording/live_page.h"
#include "collector/recording/recorder.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

constexpr char kReport[] = "report";

// Until a signal.
int Serve(http::Server& server, const model::JobModel& job, const analysis::Report& report,
          const store::RunFiles& files, const std::string& name) {
  const absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kReport, signals.status(), kFailed);
  SayError(absl::StrCat("serving ", name, " on ", server.Url(), ", until Ctrl-C"));
  recording::ServeFinished(server, job, report, files, signals->fd());
  return kDone;
}

// Of a run that somebody serves, as it is there. nullopt: it is a hub's job that is not over, so that there
// is none.
std::optional<int> ReportServed(const std::string& url, bool json) {
  const absl::StatusOr<std::string> text = http::Fetch(url, json ? "/api/report" : "/api/text");
  const bool of_hub = IsHubJob(url);
  if (of_hub && absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return Fail(kReport, text.status(), kFailed);
  if (json) {
    Print(text::PrintableLines(text::SafeJson(*text)));
  } else {
    PrintForPeople(
        absl::StrCat(*text, of_hub ? render::PageLine(absl::StrCat(absl::StripSuffix(url, "/"), "/")) : ""));
  }
  return kDone;
}

// Of one step instead of all.
int ReportStep(const std::string& given, StepMarkerOption& marker, uint64_t step,
               const render::Screen& screen) {
  const absl::StatusOr<GivenRun> run = GivenRun::Open(given);
  if (!run.ok()) return Fail(kReport, run.status(), kFailed);
  std::optional<Progress> progress(std::in_place, std::vector<std::string>{run->directory()});
  marker.TakeFrom(run->directory());
  const absl::StatusOr<std::unique_ptr<tables::Database>> database = OpenTables(kReport, *run, marker);
  if (!database.ok()) return Fail(kReport, database.status(), kFailed);
  progress.reset();
  const absl::StatusOr<std::string> text = OneStepText(**database, run->name(), step, render::Layout(screen));
  if (!text.ok()) return Fail(kReport, text.status(), kFailed);
  PrintForPeople(*text);
  return kDone;
}

// Its collector has the directory's lock: processes that have not ended are no loss.
bool IsBeingRecorded(const std::string& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return is_locked;
}

}  // namespace

int ReportMain(const Arguments& arguments) {
  CLI::App app("Reports on a recorded run, from its logs", "gpuprobe report");
  std::vector<std::string> directories;
  bool json = false;
  bool html = false;
  bool steps = false;
  bool ranks = false;
  app.add_option("DIR", directories, absl::StrCat(kGivenRun, "; several: the hosts of one job"));
  app.add_flag("--json", json, "print report.json");
  app.add_flag("--ranks", ranks, "with --json: include full detail for every rank, even beyond 1 MB")
      ->needs("--json");
  app.add_flag("--steps", steps,
               "with --json: like --ranks, and include each of the last 512 steps of every rank")
      ->needs("--json");
  app.add_flag("--html", html, "print one self-contained HTML page")->excludes("--json");
  std::optional<uint64_t> step;
  app.add_option("--step", step, "one step: where its time went, and what took longer than in others")
      ->type_name("NUMBER")
      ->check(WholeNumber(0, UINT64_MAX))
      ->excludes("--json", "--html");
  RankOptions rank_options;
  rank_options.AddTo(app);
  StepMarkerOption marker;
  marker.AddTo(app);
  ModelWorkOption work;
  work.AddTo(app);
  ColorOption color;
  color.AddTo(app);
  HubOption hub;
  hub.AddTo(app);
  HttpOption serve;
  serve.AddTo(app, "--serve", "serve the page, metrics and a JSON API");
  if (const auto code = Parse(app, arguments)) return *code;

  if (serve.address.has_value() && (json || html))
    return Fail(kReport, "--serve prints no report: leave out --json and --html", kUsage);
  if (directories.empty()) directories.emplace_back();
  for (std::string& directory : directories) {
    if (absl::Status s = hub.Resolve(directory); !s.ok()) return Fail(kReport, s, kFailed);
  }
  if (step.has_value() && (directories.size() > 1 || serve.address.has_value()))
    return Fail(kReport, "--step is of one run, and printed", kUsage);
  if (step.has_value())
    return ReportStep(directories.front(), marker, *step, ScreenOf(STDOUT_FILENO, color.no_color));
  const bool alone = directories.size() == 1;
  if (alone && http::IsUrl(directories.front()) && !(html || ranks || steps || serve.address.has_value())) {
    if (const auto code = ReportServed(directories.front(), json)) return *code;
  }
  std::vector<GivenRun> runs;
  std::vector<std::string> names;
  for (std::string& directory : directories) {
    absl::StatusOr<GivenRun> run = GivenRun::Open(directory);
    if (!run.ok()) return Fail(kReport, run.status(), kFailed);
    directory = run->directory();
    names.push_back(run->name());
    runs.push_back(*std::move(run));
  }
  const std::string name = absl::StrJoin(names, " ");
  const absl::StatusOr<std::unique_ptr<http::Server>> server = serve.Listen();
  if (!server.ok()) return Fail(kReport, server.status(), kFailed);
  std::optional<Progress> progress(std::in_place, directories);
  for (const std::string& directory : directories) marker.TakeFrom(directory);
  model::JobModel job;
  job.SetStepMarker(marker.marker);
  const absl::StatusOr<store::RunFiles> files = store::ListRuns(directories);
  if (!files.ok()) return Fail(kReport, files.status(), kFailed);
  const bool goes_on =
      alone && (runs.front().goes_on() || (files->hosts.empty() && IsBeingRecorded(directories.front())));
  const absl::StatusOr<store::Replayed> replayed =
      goes_on ? store::ReplaySoFar(directories.front(), job) : store::Replay(*files, job);
  if (!replayed.ok()) return Fail(kReport, replayed.status(), kFailed);
  if (goes_on) job.Finish(/*goes_on=*/true);
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  input.work = work.work;
  input.step_records = steps;
  input.hang_after_ns = rank_options.after_ns();
  input.link_peak = rank_options.link_peak;
  input.detail_since_ns = replayed->detail_since_ns;
  for (const std::string& directory : directories) {
    if (goes_on) break;
    for (analysis::LastMoments& moments : recording::LastMomentsIn(directory, recording::Missing::kLeaveOut))
      input.last_moments.push_back(std::move(moments));
  }
  for (const store::Damage& damage : replayed->damages) {
    input.damaged_logs.push_back(DamageLine(damage));
    Fail(kReport, absl::StrCat(name, ": ", DamageLine(damage)), kFailed);
  }
  const analysis::Report report = analysis::BuildReport(job, input);
  if (*server != nullptr) {
    progress.reset();
    return Serve(**server, job, report, *files, name);
  }
  const std::string page_path = alone ? directories.front() + "/report.html" : "";
  const bool whole = ranks || steps;
  const std::string text =
      json   ? (whole ? render::JsonReport(report) : render::JsonReportFiles(report).report)
      : html ? page::Page(job, report, *files)
             : render::TextReport(report,
                                  !page_path.empty() && std::filesystem::exists(page_path) ? page_path : "",
                                  render::Layout(ScreenOf(STDOUT_FILENO, color.no_color)));
  PrintForPeople(text);
  return kDone;
}

}  // namespace gpuprobe::cli
