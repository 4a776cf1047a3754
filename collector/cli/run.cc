#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/cli/beside.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/http_option.h"
#include "collector/cli/launch.h"
#include "collector/cli/launched_rank.h"
#include "collector/cli/ordinary_priority.h"
#include "collector/cli/output.h"
#include "collector/cli/preload_check.h"
#include "collector/cli/rank_meeting.h"
#include "collector/cli/recorded_commands.h"
#include "collector/cli/recorded_steps_option.h"
#include "collector/cli/run_channel.h"
#include "collector/cli/run_command.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/socket_directory.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/model/steps/warmup.h"
#include "collector/recording/all_hosts.h"
#include "collector/recording/health_check.h"
#include "collector/recording/live_display.h"
#include "collector/recording/live_page.h"
#include "collector/recording/recorder.h"
#include "collector/recording/rendezvous.h"
#include "collector/recording/several_hosts.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "collector/report/report.h"

namespace gpuprobe::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kRun[] = "run";
// Longest wait, after the command has ended, for processes of it that are still connected: the probe itself
// waits 2 s at exit.
constexpr milliseconds kStragglerWait{5000};
constexpr milliseconds kCheckEvery{200};

struct RunOptions {
  PlaceOption place;
  std::string out_of_all_hosts;         // empty: the job is on one host, or --out was not given
  std::optional<hub::Meeting> meeting;  // of the hosts
  KeepOption keep;
  RankOptions rank_options;
  StepMarkerOption marker;
  RecordedStepsOption steps;
  std::vector<std::pair<std::string, std::string>> environment;  // for the command, besides the probe's own
  ModelWorkOption work;
  StatusOption status;
  ColorOption color;
  HttpOption http;
  uint64_t check_steps = 0;
  bool json = false;
  bool quiet = false;
  bool no_preload = false;
};

void Say(const std::optional<std::string>& text) {
  if (text.has_value()) log::SayForPeople(*text);
}

// The hosts of a job end at about the same time.
void AwaitOtherHosts(ingest::Server& server, recording::Recorder& recorder, recording::AllHosts& all,
                     RecordedCommands& commands) {
  const Clock::time_point begin = Clock::now();
  const auto waited = [&] { return std::chrono::duration_cast<milliseconds>(Clock::now() - begin); };
  while (all.AwaitsOthers(recorder, waited()) && !commands.hurried() &&
         waited() < recording::AllHosts::kWait) {
    server.Poll(milliseconds(50));
    commands.Tick(server);
    all.Tick(recorder);
  }
}

// `all`: null if the job is on one host.
void Serve(ingest::Server& server, recording::Recorder& recorder, recording::HealthCheck& check,
           recording::LiveDisplay& display, recording::LivePage& page, recording::AllHosts* all,
           RecordedCommands& commands) {
  Clock::time_point look = Clock::now();
  while (!commands.ended()) {
    recording::PageSource& source = all == nullptr ? recorder : all->PageOf(recorder);
    server.Poll(page.Patience(source));
    recorder.Tick();
    page.Tick(source, server);
    if (recorder.heard_anything()) commands.SayDirectory(recorder.directory());
    commands.Tick(server);
    if (Clock::now() < look) continue;
    look = Clock::now() + kCheckEvery;
    if (all != nullptr) all->Tick(recorder);
    const bool several = all != nullptr && all->has_several();
    display.Tick(several ? all->status() : recorder.status(), recording::MonotonicNs());
    if (all != nullptr) all->NoteVerdicts(recorder);
    Say(recorder.Check(check, false));
  }
  commands.EndJoining(server);
  const Clock::time_point end = Clock::now() + kStragglerWait;
  server.Poll(milliseconds(0));  // clients that connected just before the end
  while (server.clients() > 0 && !commands.hurried() && Clock::now() < end) {
    server.Poll(milliseconds(50));
    recorder.Tick();
    page.Tick(all == nullptr ? recorder : all->PageOf(recorder), server);
    commands.Tick(server);
  }
  server.Drain(milliseconds(100), milliseconds(1000));
  Say(recorder.Check(check, true));
  if (all == nullptr) return;
  all->Tick(recorder);  // of a job that was over at once
  AwaitOtherHosts(server, recorder, *all, commands);
  all->NoteVerdicts(recorder);
}

// "; the command exited with code 1"; empty: it ended well, or that is not known. `status`: as waitpid gives
// it.
std::string FailureText(std::optional<int> status) {
  if (!status.has_value()) return "";
  if (WIFSIGNALED(*status))
    return absl::StrCat("; the command was ended by ",
                        analysis::SignalName(static_cast<uint32_t>(WTERMSIG(*status))));
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) == 0) return "";
  return absl::StrCat("; the command exited with code ", WEXITSTATUS(*status));
}

std::string ReportText(const analysis::Report& report, const std::string& page, const RunOptions& options) {
  if (options.json) return render::JsonReportFiles(report).report;
  return render::TextReport(report, page, render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)));
}

// The report on all hosts, or a line that says where that is; nullopt: this host's own report stands for
// itself.
std::optional<std::string> TextOfAllHosts(recording::AllHosts& all, const std::vector<std::string>& command,
                                          const RunOptions& options,
                                          std::optional<analysis::Report>& of_all) {
  recording::WholeJob* const job = all.job();
  if (job == nullptr) {
    std::string where = options.json ? "" : all.WhereReported();
    return where.empty() ? std::nullopt : std::optional(std::move(where));
  }
  std::vector<std::string> late = job->HostsThatRecord();
  analysis::ReportInput input = all.input();
  input.command_line = command;
  const absl::StatusOr<analysis::Report> report = job->Finish(input);
  if (!report.ok()) {
    SayError(absl::StrCat("run: no report on all hosts: ", report.status().message()));
    return std::nullopt;
  }
  std::string text = ReportText(*report, all.directory() + "/report.html", options);
  if (!late.empty() && !options.json)
    absl::StrAppend(&text, "gpuprobe: still recording, so that its end is missing above: ",
                    absl::StrJoin(late, ", "), "; later: gpuprobe report ", all.directory(), "\n");
  of_all = *report;
  return text;
}

// kFailed, after a line, if the report could not be written.
int PrintReport(recording::Recorder& recorder, recording::LivePage& page, recording::AllHosts* all,
                const std::vector<std::string>& command, const RunOptions& options,
                const RecordedCommands& commands) {
  const bool is_alone = commands.is_alone();
  if (!recorder.heard_anything()) {
    if (!is_alone)
      std::fprintf(stderr,
                   "gpuprobe: nothing was recorded: no process of this command initialised CUDA, or none ran "
                   "long enough to connect%s\n",
                   FailureText(commands.failure()).c_str());
    return kDone;
  }
  const analysis::Report report = recorder.Finish(command);
  const absl::Status& written = recorder.report_written();
  std::optional<std::string> text_of_all;
  std::optional<analysis::Report> of_all;
  if (all != nullptr) {
    all->End(commands.hurried() ? milliseconds(0) : recording::AllHosts::kWait);
    text_of_all = TextOfAllHosts(*all, command, options, of_all);
  }
  if (!options.quiet && !is_alone) {
    log::SayForPeople(
        text_of_all.has_value()
            ? *text_of_all
            : ReportText(report, written.ok() ? recorder.directory() + "/report.html" : "", options));
    if (!text_of_all.has_value() && all != nullptr && !options.json && written.ok())
      log::SayForPeople(all->WhyAlone());
  }
  if (of_all.has_value()) {
    page.Conclude(all->job()->model(), *of_all, all->job()->Files());
  } else {
    page.Conclude(recorder.job(), report, recorder.Files());
  }
  if (written.ok()) return kDone;
  return Fail(kRun, absl::StrCat("could not save the report: ", std::string(written.message())), kFailed);
}

// False for programs that do not start with a preloaded library; `say`: after a line that says why.
bool MayPreload(const std::vector<std::string>& command, bool unwanted, bool say) {
  if (unwanted) return false;
  const std::optional<PreloadFinding> finding = CheckPreload(command);
  if (say && finding.has_value()) Say(absl::StrCat("gpuprobe: ", PreloadLine(*finding), "\n"));
  return !finding.has_value();
}

// mpirun kills the whole group of a rank, and Slurm has one group for all of them.
void LeaveProcessGroup() {
  setpgid(0, 0);
  std::signal(SIGTTOU, SIG_IGN);  // we would be stopped for printing from the background
}

// Runs in the collector's process; returns its exit code.
int CollectRun(RunChannel channel, RankListener* ranks, const std::vector<std::string>& command,
               const std::string& socket, const RunOptions& options) {
  if (ranks != nullptr) LeaveProcessGroup();
  absl::StatusOr<std::unique_ptr<http::Server>> listening = options.http.Listen();
  if (!listening.ok()) return Fail(kRun, listening.status(), kOwnFailure);
  recording::LivePage page(*std::move(listening), command);
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder =
      recording::Recorder::Create(options.place.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kRun, recorder.status(), kOwnFailure);
  (*recorder)->SetName(options.place.name);
  const render::Layout layout(ScreenOf(STDERR_FILENO, options.color.no_color));
  std::optional<recording::AllHosts> hosts;
  if (!options.out_of_all_hosts.empty() || options.meeting.has_value()) {
    analysis::ReportInput input;
    input.collector_version = recording::Version();
    input.work = options.work.work;
    input.hang_after_ns = options.rank_options.after_ns();
    input.link_peak = options.rank_options.link_peak;
    hosts.emplace(recording::AllHosts::Options{.out = options.out_of_all_hosts,
                                               .meeting = options.meeting,
                                               .token = std::nullopt,
                                               .marker = options.marker,
                                               .hangs = options.rank_options,
                                               .input = std::move(input),
                                               .layout = layout,
                                               .keep_bytes = options.keep.bytes,
                                               .quiet = options.quiet});
    (*recorder)->SetFolderInDefault(hosts->FolderInDefault());
  }
  recording::AllHosts* const all = hosts.has_value() ? &*hosts : nullptr;
  // One host's view of a hang has only its own ranks.
  (*recorder)->WatchForHangs(
      options.rank_options,
      [all](const std::string& text) {
        if (all == nullptr || !all->has_several()) log::SayForPeople(text);
      },
      layout);
  (*recorder)->SetStepMarker(options.marker);
  (*recorder)->SetModelWork(options.work.work);
  const auto remove_out = absl::MakeCleanup([&] { (*recorder)->RemoveIfEmpty(); });
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      socket, [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); });
  if (!server.ok()) return Fail(kRun, server.status(), kOwnFailure);
  (*server)->AnswerRequests(
      [&](const v1::CaptureRequest& request) { return (*recorder)->OpenCapture(request); });
  RunAtOrdinaryPriority();  // chrt, nice and taskset before `gpuprobe run` are meant for the command
  RecordedCommands commands(std::move(channel), ranks, socket,
                            [&](pid_t pid, int wait_status) { (*recorder)->NoteChildEnd(pid, wait_status); });
  if (absl::Status s = commands.WatchOn(**server); !s.ok()) return Fail(kRun, s, kOwnFailure);
  if (!commands.AwaitStart()) return kDone;
  recording::HealthCheck check(options.check_steps);
  recording::LiveDisplay display(options.quiet ? 0 : options.status.seconds,
                                 ScreenOf(STDERR_FILENO, options.color.no_color));
  page.Start();
  if (!page.Url().empty() && !options.quiet) std::fprintf(stderr, "gpuprobe: live: %s\n", page.Url().c_str());
  Serve(**server, **recorder, check, display, page, all, commands);
  (*server)->SayEnded();
  server->reset();
  // We remove it ourselves because the waiting process may be killed before it can.
  RemoveSocketDirectory(std::filesystem::path(socket).parent_path());
  return PrintReport(**recorder, page, all, command, options, commands);
}

// Meets the ranks that record into the same directory. If the ranks of this host cannot meet, prints why and
// records alone.
RankMeeting MeetOtherRanks(const std::string& out) {
  std::optional<LaunchedRank> self = FindLaunchedRank();
  if (!self.has_value()) return {};
  std::error_code ignored;
  if (!out.empty()) absl::StrAppend(&self->job, " ", std::filesystem::absolute(out, ignored).string());
  absl::StatusOr<RankMeeting> meeting = MeetRanks(*self);
  if (meeting.ok()) return *std::move(meeting);
  SayError(absl::StrCat(
      "run: rank ", self->rank,
      " is recorded by itself, because it cannot look for others: ", meeting.status().message()));
  return {};
}

CommandEnd Supervise(const std::vector<std::string>& command, const std::string& library,
                     const RunOptions& options) {
  RankMeeting meeting = MeetOtherRanks(options.place.out);
  const auto environment = [&](const std::string& socket, bool say) {
    auto variables = ProbeEnvironment(library, socket, MayPreload(command, options.no_preload, say));
    variables.insert(variables.end(), options.environment.begin(), options.environment.end());
    return variables;
  };
  if (meeting.joined.has_value()) {
    const std::string socket = meeting.joined->socket;
    return RunJoined(
        command, [&] { return environment(socket, /*say=*/false); }, *std::move(meeting.joined));
  }
  RankListener* const ranks = meeting.first.has_value() ? &*meeting.first : nullptr;
  const absl::StatusOr<std::string> folder = ranks != nullptr ? ranks->folder() : MakeSocketDirectory();
  if (!folder.ok()) return {.exit_code = Fail(kRun, folder.status(), kOwnFailure)};
  const std::string socket = *folder + "/collector.sock";
  const CommandEnd end = RunBesideCollector(
      command, [&] { return environment(socket, /*say=*/true); },
      [&](RunChannel channel) { return CollectRun(std::move(channel), ranks, command, socket, options); },
      ranks);
  if (!end.collector_goes_on) RemoveSocketDirectory(*folder);
  return end;
}

}  // namespace

int RunMain(const Arguments& arguments) {
  CLI::App app("Runs a command under the probe; its streams, signals and exit code pass through unchanged",
               "gpuprobe run");
  RunOptions options;
  options.place.AddTo(app);
  options.keep.AddTo(app);
  options.rank_options.AddTo(app);
  options.marker.AddTo(app);
  options.steps.AddTo(app);
  options.work.AddTo(app);
  options.status.AddTo(app);
  options.http.AddTo(app, "--http", "serve the page of the run, metrics and a JSON API, while it runs,");
  options.color.AddTo(app);
  app.add_option("--check", options.check_steps,
                 absl::StrCat("print findings once this many steps after the warm-up are known, then keep "
                              "running; the warm-up is known after ",
                              model::kFirstWarmupLook, " steps, and records arrive twice per second"))
      ->check(WholeNumber(1, 1'000'000))
      ->option_text("STEPS");
  app.add_flag("--json", options.json, "at the end, print report.json on stderr instead of the text report");
  app.add_flag("--quiet", options.quiet,
               "print hangs and errors only; the report is written to the run directory all the same");
  app.add_flag("--no-preload", options.no_preload,
               "let CUDA load the probe instead of preloading it: for commands that start sanitized "
               "programs, which refuse preloaded libraries (detected only for programs named in COMMAND)");
  app.prefix_command();
  app.footer("  gpuprobe run [OPTIONS] -- COMMAND [ARGUMENTS]");
  // Everything after "--" is the command's, whatever it looks like.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (const auto code = Parse(app, Arguments(arguments.begin(), dashes))) return *code;
  std::vector<std::string> command = app.remaining();
  if (!command.empty() && command.front().starts_with("-")) return RefuseArgument(app, {command.front()});
  if (dashes != arguments.end())
    command.insert(command.end(), command.empty() ? dashes + 1 : dashes, arguments.end());
  if (command.empty()) {
    return Fail(kRun, "no command to run: gpuprobe run [OPTIONS] -- COMMAND [ARGUMENTS]", kUsage);
  }
  const auto variable = [](const char* name) -> const char* { return std::getenv(name); };
  const bool spans_hosts = recording::SpansHosts(command, variable);
  auto meeting = recording::FindMeeting(command, variable, spans_hosts);
  if (!meeting.ok()) return Fail(kRun, meeting.status(), kUsage);
  options.meeting = *std::move(meeting);
  if (spans_hosts) {
    options.out_of_all_hosts = options.place.out;
    if (!options.place.out.empty()) options.place.out = recording::FolderOfThisHost(options.place.out);
  }
  auto environment = options.steps.Environment(options.marker.marker);
  if (!environment.ok()) return Fail(kRun, std::string(environment.status().message()), kUsage);
  options.environment = *std::move(environment);
  const absl::StatusOr<std::string> library = FindLibrary();
  if (!library.ok()) return Fail(kRun, library.status(), kOwnFailure);
  const CommandEnd end = Supervise(command, *library, options);
  if (end.end_signal != 0) recording::EndBySignal(end.end_signal);
  return end.exit_code;
}

}  // namespace gpuprobe::cli
