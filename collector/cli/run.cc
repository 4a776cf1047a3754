#include <sys/resource.h>
#include <sys/wait.h>
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
#include "collector/cli/preload_check.h"
#include "collector/cli/recorded_steps_option.h"
#include "collector/cli/recorder.h"
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
// As env, timeout and nohup use them, so that our own failure is not mistaken for the command's.
constexpr int kOwnFailure = 125;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;
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

struct Child {
  pid_t pid = -1;
  bool ended = false;
  int status = 0;  // of waitpid
  int exit_code = 0;
  int end_signal = 0;        // 0: it exited
  bool interrupted = false;  // a signal to end came after the child's end: waits for nobody any more

  void Reap() {
    if (ended || waitpid(pid, &status, WNOHANG) != pid) return;
    if (!WIFEXITED(status) && !WIFSIGNALED(status)) return;
    ended = true;
    if (WIFSIGNALED(status)) end_signal = WTERMSIG(status);
    exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + end_signal;
  }
  void Forward(const signalfd_siginfo& info) {
    if (ended) {
      interrupted = info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2;
      return;
    }
    // A signal that the terminal sent went to the whole foreground group, the command included.
    if (info.ssi_code == SI_KERNEL) return;
    kill(pid, static_cast<int>(info.ssi_signo));
  }
};

void Say(const std::optional<std::string>& text) {
  if (text.has_value()) std::fputs(text->c_str(), stderr);
}

void Serve(ingest::Server& server, Recorder& recorder, HealthCheck& check, LiveDisplay& display,
           LivePage& page, Child& child) {
  Clock::time_point look = Clock::now();
  while (!child.ended) {
    server.Poll(page.Patience(recorder));
    recorder.Tick();
    display.Tick(recorder.status(), MonotonicNs());
    page.Tick(recorder, server);
    child.Reap();
    if (Clock::now() < look) continue;
    look = Clock::now() + kCheckEvery;
    Say(recorder.Check(check, false));
  }
  recorder.NoteChildEnd(child.pid, child.status);
  const Clock::time_point end = Clock::now() + kStragglerWait;
  server.Poll(milliseconds(0));  // who connected just before the end
  while (server.clients() > 0 && !child.interrupted && Clock::now() < end) {
    server.Poll(milliseconds(50));
    recorder.Tick();
    page.Tick(recorder, server);
  }
  server.Drain(milliseconds(100), milliseconds(1000));
  Say(recorder.Check(check, true));
}

void PrintReport(Recorder& recorder, LivePage& page, const std::vector<std::string>& command,
                 const RunOptions& options) {
  if (!recorder.heard_anything()) {
    std::fprintf(stderr,
                 "gpuprobe: nothing was recorded: no process of this command initialised CUDA, or none ran "
                 "long enough to connect\n");
    return;
  }
  const analysis::Report report = recorder.Finish(command);
  const absl::Status& written = recorder.report_written();
  const std::string file = written.ok() ? recorder.directory() + "/report.html" : "";
  const render::Layout layout(ScreenOf(STDERR_FILENO, options.color.no_color));
  const std::string text =
      options.json ? render::JsonReportFiles(report).report : render::TextReport(report, file, layout);
  if (!options.quiet) std::fputs(text.c_str(), stderr);
  if (!written.ok())
    Fail(kRun, absl::StrCat("could not save the report: ", std::string(written.message())), kFailed);
  page.Conclude(recorder, report);
}

// False, after a line that says why, for programs that do not start with a preloaded library.
bool MayPreload(const std::vector<std::string>& command, bool unwanted) {
  if (unwanted) return false;
  const std::optional<PreloadFinding> finding = CheckPreload(command);
  if (finding.has_value()) Say(absl::StrCat("gpuprobe: ", PreloadLine(*finding), "\n"));
  return !finding.has_value();
}

int ExecFailure(const std::vector<std::string>& command, int error) {
  Fail(kRun, absl::StrCat(command.front(), ": ", std::strerror(error)), kFailed);
  return error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable;
}

int Supervise(const std::vector<std::string>& command, const std::string& library, const RunOptions& options,
              int* end_signal) {
  absl::StatusOr<std::unique_ptr<http::Server>> listening = options.http.Listen();
  if (!listening.ok()) return Fail(kRun, listening.status(), kOwnFailure);
  LivePage page(*std::move(listening), command);
  absl::StatusOr<std::unique_ptr<Recorder>> recorder = Recorder::Create(options.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kRun, recorder.status(), kOwnFailure);
  (*recorder)->WatchForHangs(
      options.rank_options, [](const std::string& text) { std::fputs(text.c_str(), stderr); },
      render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)));
  (*recorder)->SetStepMarker(options.marker);
  (*recorder)->SetModelWork(options.work.work);
  const auto remove_out = absl::MakeCleanup([&] { (*recorder)->RemoveIfEmpty(); });
  const absl::StatusOr<std::string> folder = MakeSocketDirectory();
  if (!folder.ok()) return Fail(kRun, folder.status(), kOwnFailure);
  const auto remove_folder = absl::MakeCleanup([&] {
    std::error_code ignored;
    std::filesystem::remove_all(*folder, ignored);
  });
  const std::string socket = *folder + "/collector.sock";
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      socket, [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); });
  if (!server.ok()) return Fail(kRun, server.status(), kOwnFailure);
  absl::StatusOr<SignalFd> signals =
      SignalFd::Open({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
  if (!signals.ok()) return Fail(kRun, signals.status(), kOwnFailure);

  auto environment = ProbeEnvironment(library, socket, MayPreload(command, options.no_preload));
  environment.insert(environment.end(), options.environment.begin(), options.environment.end());
  const Launched launched = Launch(command, environment, signals->previous_mask());
  if (launched.error != 0) {
    return ExecFailure(command, launched.error);
  }
  RunAtOrdinaryPriority();  // chrt, nice and taskset before `gpuprobe run` are meant for the command
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  Child child{.pid = launched.pid};
  const absl::Status watched = (*server)->Watch(signals->fd(), [&] {
    signals->ReadAll([&](const signalfd_siginfo& info) {
      if (info.ssi_signo == SIGCHLD) {
        child.Reap();
      } else {
        child.Forward(info);
      }
    });
  });
  if (!watched.ok()) log::Warn(absl::StrCat("signals are not forwarded: ", watched.message()));
  HealthCheck check(options.check_steps);
  LiveDisplay display(options.quiet ? 0 : options.status.seconds,
                      ScreenOf(STDERR_FILENO, options.color.no_color));
  page.Start();
  if (!page.Url().empty() && !options.quiet) std::fprintf(stderr, "gpuprobe: live: %s\n", page.Url().c_str());
  Serve(**server, **recorder, check, display, page, child);
  (*server)->SayEnded();
  server->reset();
  PrintReport(**recorder, page, command, options);
  *end_signal = child.end_signal;
  return child.exit_code;
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
  int end_signal = 0;
  const int code = Supervise(command, *library, options, &end_signal);
  if (end_signal != 0) EndBySignal(end_signal);
  return code;
}

}  // namespace gpuprobe::cli
