#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/report.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/health_check.h"
#include "collector/cli/http_option.h"
#include "collector/cli/launch.h"
#include "collector/cli/live_display.h"
#include "collector/cli/live_page.h"
#include "collector/cli/ordinary_priority.h"
#include "collector/cli/output.h"
#include "collector/cli/preload_check.h"
#include "collector/cli/recorded_steps_option.h"
#include "collector/cli/recorder.h"
#include "collector/cli/run_channel.h"
#include "collector/cli/run_command.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/signals.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/model/steps/warmup.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"

namespace gpuprobe::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kRun[] = "run";
// Longest wait, after the command has ended, for processes of it that are still connected: the probe itself
// waits 2 s at exit.
constexpr milliseconds kStragglerWait{5000};
constexpr milliseconds kCheckEvery{200};

// A private folder for the socket, removed at the end.
absl::StatusOr<std::string> MakeSocketDirectory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::vector<std::string> bases;
  if (runtime != nullptr && *runtime != '\0') bases.emplace_back(runtime);
  bases.emplace_back("/tmp");
  int error = 0;
  for (const std::string& base : bases) {
    std::string path = base + "/gpuprobe-run-XXXXXX";
    if (mkdtemp(path.data()) != nullptr) return path;
    error = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("cannot create a directory for the socket: ", bases.back(), ": ", std::strerror(error)));
}

void RemoveSocketDirectory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

struct RunOptions {
  std::string out;
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
  if (text.has_value()) SayForPeople(*text);
}

// The command as the collector sees it: through the process that waits for it.
class WatchedCommand {
 public:
  explicit WatchedCommand(RunChannel channel) : channel_(std::move(channel)) {}
  ~WatchedCommand() {
    if (pidfd_ >= 0) close(pidfd_);
  }
  WatchedCommand(const WatchedCommand&) = delete;
  WatchedCommand& operator=(const WatchedCommand&) = delete;

  // Waits until it is started. False: it never is.
  bool AwaitStart() {
    channel_.Send(RunMessageKind::kReady);
    RunMessage message;
    if (!channel_.Receive(message, /*wait=*/true) || message.kind != RunMessageKind::kStarted) return false;
    pid_ = message.value;
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    return true;
  }
  void OnMessages() {
    RunMessage message;
    while (!channel_.gone() && channel_.Receive(message, /*wait=*/false)) {
      if (message.kind == RunMessageKind::kHurry) hurried_ = true;
      if (message.kind != RunMessageKind::kEnded) continue;
      ended_ = true;
      status_ = message.value;
    }
  }
  // Without the process that waits for it (somebody killed that), the command is watched from here.
  void LookIfAlone() {
    if (ended_) return;
    pollfd fd{.fd = pidfd_, .events = POLLIN, .revents = 0};
    ended_ = pidfd_ < 0 || poll(&fd, 1, 0) != 0;
  }
  void SayDirectory(const std::string& directory) {
    if (said_directory_ || directory.empty()) return;
    said_directory_ = true;
    channel_.Send(RunMessageKind::kDirectory, 0, directory);
  }

  int fd() const { return channel_.fd(); }
  pid_t pid() const { return pid_; }
  bool ended() const { return ended_; }
  std::optional<int> status() const { return status_; }
  bool hurried() const { return hurried_; }
  // Nobody waits for a report on the screen.
  bool is_alone() const { return channel_.gone(); }

 private:
  RunChannel channel_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool ended_ = false;
  bool hurried_ = false;
  bool said_directory_ = false;
  std::optional<int> status_;  // as waitpid gave it
};

void Serve(ingest::Server& server, Recorder& recorder, HealthCheck& check, LiveDisplay& display,
           LivePage& page, WatchedCommand& command) {
  Clock::time_point look = Clock::now();
  while (!command.ended()) {
    server.Poll(page.Patience(recorder));
    recorder.Tick();
    display.Tick(recorder.status(), MonotonicNs());
    page.Tick(recorder, server);
    if (recorder.heard_anything()) command.SayDirectory(recorder.directory());
    if (command.is_alone()) {
      server.Unwatch(command.fd());  // it would be readable for ever
      command.LookIfAlone();
    }
    if (Clock::now() < look) continue;
    look = Clock::now() + kCheckEvery;
    Say(recorder.Check(check, false));
  }
  if (command.status().has_value()) recorder.NoteChildEnd(command.pid(), *command.status());
  const Clock::time_point end = Clock::now() + kStragglerWait;
  server.Poll(milliseconds(0));  // who connected just before the end
  while (server.clients() > 0 && !command.hurried() && Clock::now() < end) {
    server.Poll(milliseconds(50));
    recorder.Tick();
    page.Tick(recorder, server);
  }
  server.Drain(milliseconds(100), milliseconds(1000));
  Say(recorder.Check(check, true));
}

// kFailed, after a line, if the report could not be written.
int PrintReport(Recorder& recorder, LivePage& page, const std::vector<std::string>& command,
                const RunOptions& options, bool is_alone) {
  if (!recorder.heard_anything()) {
    if (!is_alone)
      std::fprintf(stderr,
                   "gpuprobe: nothing was recorded: no process of this command initialised CUDA, or none ran "
                   "long enough to connect\n");
    return kDone;
  }
  const analysis::Report report = recorder.Finish(command);
  const absl::Status& written = recorder.report_written();
  const std::string file = written.ok() ? recorder.directory() + "/report.html" : "";
  const render::Layout layout(ScreenOf(STDERR_FILENO, options.color.no_color));
  const std::string text =
      options.json ? render::JsonReportFiles(report).report : render::TextReport(report, file, layout);
  if (!options.quiet && !is_alone) SayForPeople(text);
  page.Conclude(recorder, report);
  if (written.ok()) return kDone;
  return Fail(kRun, absl::StrCat("could not save the report: ", std::string(written.message())), kFailed);
}

// False, after a line that says why, for programs that do not start with a preloaded library.
bool MayPreload(const std::vector<std::string>& command, bool unwanted) {
  if (unwanted) return false;
  const std::optional<PreloadFinding> finding = CheckPreload(command);
  if (finding.has_value()) Say(absl::StrCat("gpuprobe: ", PreloadLine(*finding), "\n"));
  return !finding.has_value();
}

// What the collector's process does; its exit code.
int CollectRun(RunChannel channel, const std::vector<std::string>& command, const std::string& socket,
               const RunOptions& options) {
  absl::StatusOr<std::unique_ptr<http::Server>> listening = options.http.Listen();
  if (!listening.ok()) return Fail(kRun, listening.status(), kOwnFailure);
  LivePage page(*std::move(listening), command);
  absl::StatusOr<std::unique_ptr<Recorder>> recorder = Recorder::Create(options.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kRun, recorder.status(), kOwnFailure);
  (*recorder)->WatchForHangs(
      options.rank_options, [](const std::string& text) { SayForPeople(text); },
      render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)));
  (*recorder)->SetStepMarker(options.marker);
  (*recorder)->SetModelWork(options.work.work);
  const auto remove_out = absl::MakeCleanup([&] { (*recorder)->RemoveIfEmpty(); });
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      socket, [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); });
  if (!server.ok()) return Fail(kRun, server.status(), kOwnFailure);
  RunAtOrdinaryPriority();  // chrt, nice and taskset before `gpuprobe run` are meant for the command
  WatchedCommand watched(std::move(channel));
  if (absl::Status s = (*server)->Watch(watched.fd(), [&] { watched.OnMessages(); }); !s.ok())
    return Fail(kRun, s, kOwnFailure);
  if (!watched.AwaitStart()) return kDone;
  HealthCheck check(options.check_steps);
  LiveDisplay display(options.quiet ? 0 : options.status.seconds,
                      ScreenOf(STDERR_FILENO, options.color.no_color));
  page.Start();
  if (!page.Url().empty() && !options.quiet) std::fprintf(stderr, "gpuprobe: live: %s\n", page.Url().c_str());
  Serve(**server, **recorder, check, display, page, watched);
  (*server)->SayEnded();
  server->reset();
  if (watched.is_alone()) RemoveSocketDirectory(std::filesystem::path(socket).parent_path());
  return PrintReport(**recorder, page, command, options, watched.is_alone());
}

CommandEnd Supervise(const std::vector<std::string>& command, const std::string& library,
                     const RunOptions& options) {
  const absl::StatusOr<std::string> folder = MakeSocketDirectory();
  if (!folder.ok()) return {.exit_code = Fail(kRun, folder.status(), kOwnFailure)};
  const auto remove_folder = absl::MakeCleanup([&] { RemoveSocketDirectory(*folder); });
  const std::string socket = *folder + "/collector.sock";
  return RunBesideCollector(
      command,
      [&] {
        auto environment = ProbeEnvironment(library, socket, MayPreload(command, options.no_preload));
        environment.insert(environment.end(), options.environment.begin(), options.environment.end());
        return environment;
      },
      [&](RunChannel channel) { return CollectRun(std::move(channel), command, socket, options); });
}

}  // namespace

int RunMain(const Arguments& arguments) {
  CLI::App app("Runs a command under the probe; its streams, signals and exit code pass through unchanged",
               "gpuprobe run");
  RunOptions options;
  app.add_option("--out", options.out, "run directory [gpuprobe-runs/<UTC time>-<name>]")->check(NotEmpty());
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
  auto environment = options.steps.Environment(options.marker.marker);
  if (!environment.ok()) return Fail(kRun, std::string(environment.status().message()), kUsage);
  options.environment = *std::move(environment);
  const absl::StatusOr<std::string> library = FindLibrary();
  if (!library.ok()) return Fail(kRun, library.status(), kOwnFailure);
  const CommandEnd end = Supervise(command, *library, options);
  if (end.end_signal != 0) EndBySignal(end.end_signal);
  return end.exit_code;
}

}  // namespace gpuprobe::cli
