#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collector/cli/attach/injection.h"
#include "collector/cli/attach/refusals.h"
#include "collector/cli/attach/variables.h"
#include "collector/cli/beside.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/http_option.h"
#include "collector/cli/output.h"
#include "collector/cli/run_command.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/socket_directory.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/recording/live_display.h"
#include "collector/recording/live_page.h"
#include "collector/recording/recorder.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "proto/settings.h"

namespace gpuprobe::cli {
namespace attach {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kAttach[] = "attach";
constexpr milliseconds kCheckEvery{200};
// Longest wait for processes to deliver the last records: each needs half a second for what still runs, and
// the time of a flush.
constexpr milliseconds kDetachWait{10'000};

struct AttachOptions {
  std::vector<int> pids;
  PlaceOption place;
  std::string duration;
  KeepOption keep;
  RankOptions rank_options;
  StepMarkerOption marker;
  ModelWorkOption work;
  StatusOption status;
  HttpOption http;
  ColorOption color;
  bool json = false;
  bool quiet = false;
};

// Settings of our environment, as a program that we started would have them, but for those of a place.
std::vector<std::string> SettingsFor(const std::string& socket) {
  static const std::set<std::string_view> kOwn = {
      "GPUPROBE_SOCKET",  "GPUPROBE_AUTOSTART",  "GPUPROBE_OUT",  "GPUPROBE_RANK",
      "GPUPROBE_DISABLE", "GPUPROBE_IN_SANDBOX", "GPUPROBE_LEVEL"};
  std::vector<std::string> settings = {"GPUPROBE_SOCKET=" + socket, "GPUPROBE_AUTOSTART=0"};
  for (const settings::Setting& setting : settings::kSettings) {
    const std::string name(setting.name);
    const char* const value = std::getenv(name.c_str());
    if (value != nullptr && *value != '\0' && !kOwn.contains(setting.name))
      settings.push_back(absl::StrCat(name, "=", value));
  }
  return settings;
}

void SayRefusal(pid_t pid, const std::string& why) { SayError(absl::StrCat(kAttach, ": ", pid, ": ", why)); }

// The one user to whom the processes belong; nullopt, after a line: they have several.
std::optional<uid_t> OwnerOf(const std::vector<int>& pids) {
  std::set<uid_t> users;
  for (const int pid : pids) {
    const auto status =
        observe::ParseStatus(observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/status")).value_or(""));
    users.insert(status.has_value() ? status->user : geteuid());
  }
  if (users.size() == 1) return *users.begin();
  SayError("attach: the processes belong to several users; attach to those of one at a time");
  return std::nullopt;
}

// Attaches to one process after the other, on a thread of its own: the collector answers them meanwhile.
class Attaching {
 public:
  Attaching(std::vector<int> pids, std::string library, std::vector<std::string> settings)
      : thread_([this, pids = std::move(pids), library = std::move(library), settings = std::move(settings)] {
          for (const int pid : pids) {
            if (stopped_) break;
            const absl::Status status = Inject(pid, library, VariablesFor(pid, settings));
            if (status.ok()) {
              ++attached_;
            } else {
              SayRefusal(pid, std::string(status.message()));
              ++refused_;
            }
          }
          done_ = true;
        }) {}
  ~Attaching() { thread_.join(); }
  Attaching(const Attaching&) = delete;
  Attaching& operator=(const Attaching&) = delete;

  // Not the next process any more.
  void Stop() { stopped_ = true; }
  bool done() const { return done_; }
  size_t attached() const { return attached_; }
  size_t refused() const { return refused_; }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<bool> done_{false};
  std::atomic<size_t> attached_{0};
  std::atomic<size_t> refused_{0};
  std::thread thread_;
};

// The recording from the first process that connects to the end.
class Recording {
 public:
  Recording(ingest::Server& server, recording::Recorder& recorder, recording::LivePage& page,
            const AttachOptions& options)
      : server_(server),
        recorder_(recorder),
        page_(page),
        options_(options),
        display_(options.quiet ? 0 : options.status.seconds,
                 ScreenOf(STDERR_FILENO, options.color.no_color)) {}

  void OnSignal(const signalfd_siginfo& signal) {
    // `gpuprobe detach PID` sends the process's number.
    if (signal.ssi_signo == SIGUSR1) {
      if (signal.ssi_int > 0) server_.AskToDetach(signal.ssi_int);
      return;
    }
    hurried_ = stop_;
    stop_ = true;
  }

  // Until everything is delivered. `seconds`: 0: no limit.
  void Serve(Attaching& attaching, double seconds, const std::string& socket_folder) {
    std::optional<Clock::time_point> end;
    bool said = false;
    while (!stop_ || !attaching.done()) {
      if (stop_) attaching.Stop();
      Poll(page_.Patience(recorder_));
      display_.Tick(recorder_.status(), recording::MonotonicNs());
      if (!attaching.done()) continue;
      if (!said) {
        said = true;
        RemoveSocketDirectory(socket_folder);  // nobody connects any more
        if (attaching.attached() == 0) break;
        SayWhere(attaching.attached());
        if (seconds > 0)
          end = Clock::now() +
                std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
      }
      if (server_.clients() == 0 || (end.has_value() && Clock::now() >= *end)) break;
    }
    EndAll();
  }

 private:
  void Poll(milliseconds most) {
    server_.Poll(std::min(most, kCheckEvery));
    recorder_.Tick();
    page_.Tick(recorder_, server_);
  }

  void SayWhere(size_t processes) const {
    if (options_.quiet) return;
    SayError(
        absl::StrCat("attached to ", processes, processes == 1 ? " process" : " processes", "; recording to ",
                     recorder_.directory(),
                     options_.duration.empty() ? " until Ctrl-C" : absl::StrCat(" for ", options_.duration),
                     recording::LiveWords(page_)));
  }

  void EndAll() {
    Poll(milliseconds(0));  // who has just connected
    server_.AskToDetach(0);
    const Clock::time_point until = Clock::now() + kDetachWait;
    while (server_.clients() > 0 && !hurried_ && Clock::now() < until) Poll(milliseconds(50));
    server_.Drain(milliseconds(300), milliseconds(hurried_ ? 300 : 3000));
    server_.SayEnded();  // to those that did not answer
  }

  ingest::Server& server_;
  recording::Recorder& recorder_;
  recording::LivePage& page_;
  const AttachOptions& options_;
  recording::LiveDisplay display_;
  bool stop_ = false;
  bool hurried_ = false;  // asked to stop twice
};

int Report(recording::Recorder& recorder, recording::LivePage& page, const AttachOptions& options) {
  const analysis::Report report = recorder.Finish({});
  const absl::Status& written = recorder.report_written();
  if (options.json) {
    Print(render::JsonReportFiles(report).report);
  } else if (!options.quiet) {
    PrintForPeople(render::TextReport(report, written.ok() ? recorder.directory() + "/report.html" : "",
                                      render::Layout(ScreenOf(STDOUT_FILENO, options.color.no_color))));
  }
  FlushOutput();
  page.Conclude(recorder.job(), report, recorder.Files());
  if (written.ok()) return kDone;
  return Fail(kAttach, absl::StrCat("could not save the report: ", std::string(written.message())), kFailed);
}

// True if all may be attached to; else a line was printed for each that may not.
bool CheckAll(const std::vector<int>& pids, const std::string& library, const std::string& socket_folder) {
  bool all = true;
  for (const int pid : pids) {
    const std::optional<std::string> why = WhyNotAttachable(pid, library, socket_folder);
    if (!why.has_value()) continue;
    SayRefusal(pid, *why);
    all = false;
  }
  return all;
}

int Attach(const AttachOptions& options, double seconds) {
  const absl::StatusOr<std::string> library = FindLibrary();
  if (!library.ok()) return Fail(kAttach, library.status(), kOwnFailure);
  const std::optional<uid_t> owner = OwnerOf(options.pids);
  if (!owner.has_value()) return kOwnFailure;
  const bool for_another = *owner != geteuid();
  const absl::StatusOr<std::string> folder = MakeSocketDirectory(/*private_place=*/!for_another);
  if (!folder.ok()) return Fail(kAttach, folder.status(), kOwnFailure);
  const auto removing = absl::MakeCleanup([&] { RemoveSocketDirectory(*folder); });
  if (!CheckAll(options.pids, *library, *folder)) return kOwnFailure;

  absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGINT, SIGTERM, SIGHUP, SIGUSR1});
  if (!signals.ok()) return Fail(kAttach, signals.status(), kOwnFailure);
  absl::StatusOr<std::unique_ptr<http::Server>> listening = options.http.Listen();
  if (!listening.ok()) return Fail(kAttach, listening.status(), kOwnFailure);
  recording::LivePage page(*std::move(listening), {});
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder =
      recording::Recorder::Create(options.place.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kAttach, recorder.status(), kOwnFailure);
  const auto remove_out = absl::MakeCleanup([&] { (*recorder)->RemoveIfEmpty(); });
  (*recorder)->SetName(options.place.name);
  (*recorder)->WatchForHangs(
      options.rank_options, [](const std::string& text) { log::SayForPeople(text); },
      render::Layout(ScreenOf(STDERR_FILENO, options.color.no_color)));
  (*recorder)->SetStepMarker(options.marker);
  (*recorder)->SetModelWork(options.work.work);
  const std::string socket = *folder + "/collector.sock";
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      socket, [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); },
      {.other_user = for_another ? std::optional(*owner) : std::nullopt});
  if (!server.ok()) return Fail(kAttach, server.status(), kOwnFailure);
  // Where we are root, the socket has to be the user's, or the process could not reach it.
  if (for_another && (chown(socket.c_str(), *owner, static_cast<gid_t>(-1)) != 0 ||
                      chown(folder->c_str(), *owner, static_cast<gid_t>(-1)) != 0))
    return Fail(kAttach, absl::StrCat("the socket cannot be given to user ", *owner), kOwnFailure);

  Recording recording(**server, **recorder, page, options);
  if (absl::Status s = (*server)->Watch(
          signals->fd(),
          [&] { signals->ReadAll([&](const signalfd_siginfo& signal) { recording.OnSignal(signal); }); });
      !s.ok())
    return Fail(kAttach, s, kOwnFailure);
  page.Start();
  size_t refused = 0;
  {
    Attaching attaching(options.pids, *library, SettingsFor(socket));
    recording.Serve(attaching, seconds, *folder);
    refused = attaching.refused();
  }
  server->reset();
  if (!(*recorder)->heard_anything()) {
    if (refused == 0) SayError("attach: no process connected; nothing was recorded");
    return kOwnFailure;
  }
  const int code = Report(**recorder, page, options);
  return code == kDone && refused > 0 ? kOwnFailure : code;
}

// "30s", "5m", "2h" or seconds; 0 of no text.
std::optional<double> SecondsOf(const std::string& text) {
  if (text.empty()) return 0;
  constexpr double kMost = 1e7;
  double seconds = 0;
  absl::Duration duration;
  if (!absl::SimpleAtod(text, &seconds) && absl::ParseDuration(text, &duration))
    seconds = absl::ToDoubleSeconds(duration);
  return seconds > 0 && seconds <= kMost ? std::optional(seconds) : std::nullopt;
}

}  // namespace
}  // namespace attach

int AttachMain(const Arguments& arguments) {
  CLI::App app(
      "Records processes that run already: loads the library into them, collects until Ctrl-C, --for or "
      "their "
      "end, and then reports. The processes go on unrecorded. What they did before is not known.",
      "gpuprobe attach");
  attach::AttachOptions options;
  app.add_option("PID", options.pids, "processes that use CUDA, all ranks of a job together")
      ->required()
      ->check(CLI::PositiveNumber);
  options.place.AddTo(app);
  app.add_option("--for", options.duration, "how long to record, as 30s, 5m or 2h [until Ctrl-C]")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return !text.empty() && attach::SecondsOf(text).has_value()
                       ? std::string()
                       : absl::StrCat("must be a time such as 30s, 5m or 2h, got \"", text, "\"");
          },
          ""))
      ->option_text("TIME");
  options.keep.AddTo(app);
  options.rank_options.AddTo(app);
  options.marker.AddTo(app);
  options.work.AddTo(app);
  options.status.AddTo(app);
  options.http.AddTo(app, "--http", "serve the page of the run, metrics and a JSON API, while it records,");
  options.color.AddTo(app);
  app.add_flag("--json", options.json, "at the end, print report.json instead of the text report");
  app.add_flag("--quiet", options.quiet,
               "print hangs and errors only; the report is written to the run directory all the same");
  if (const auto code = Parse(app, arguments)) return *code;
  std::set<int> seen;
  std::erase_if(options.pids, [&](int pid) { return !seen.insert(pid).second; });
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  return attach::Attach(options, *attach::SecondsOf(options.duration));
}

}  // namespace gpuprobe::cli
