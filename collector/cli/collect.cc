#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collector/analysis/units.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/http_option.h"
#include "collector/cli/ordinary_priority.h"
#include "collector/cli/output.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/ingest/endpoint.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/recording/job_recorder.h"
#include "collector/recording/launched_job.h"
#include "collector/recording/live_page.h"
#include "collector/recording/node_collector.h"
#include "collector/recording/node_limits.h"
#include "collector/recording/recorder.h"
#include "collector/recording/rendezvous.h"
#include "collector/recording/several_hosts.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/render/text_report.h"
#include "collector/report/report.h"
#include "collector/store/run_directory.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kCollect[] = "collect";
constexpr milliseconds kFirstWait{15000};  // of a collector that a rank started, for the first one
constexpr absl::string_view kHttps = "https://";
constexpr char kNodeRuns[] = "/var/log/gpuprobe";  // where --node records

struct CollectOptions {
  std::string socket;
  std::string out;
  bool autostarted = false;
  bool node = false;
  std::string hub;
  uint64_t user_disk = recording::node::kDefaultUserDisk;
  uint64_t user_memory = recording::node::kDefaultUserMemory;
  KeepOption keep;
  RankOptions rank_options;
  StepMarkerOption marker;
  HttpOption http;
};

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.string();
}

// A directory that only this user can look into, for runs that have no better place.
absl::StatusOr<store::Directory> OwnFolder() {
  const std::string path = absl::StrCat("/tmp/gpuprobe-", geteuid());
  mkdir(path.c_str(), 0700);
  absl::StatusOr<store::Directory> folder = store::Directory::Make(path);
  struct stat st {};
  if (!folder.ok() || (fstat(folder->fd(), &st) == 0 && st.st_uid == geteuid())) return folder;
  return absl::PermissionDeniedError(absl::StrCat(path, " belongs to another user"));
}

// The run that a collector left unfinished when it died, if this process was recorded there.
absl::StatusOr<store::Directory> UnfinishedRun(const v1::Hello& hello) {
  if (!hello.resumes() || !hello.wanted_directory().starts_with('/'))
    return absl::NotFoundError("nothing to resume");
  bool unfinished = false;
  absl::StatusOr<store::Directory> directory =
      store::PrepareRunDirectory(hello.wanted_directory(), &unfinished);
  if (!directory.ok()) return directory;
  if (!unfinished) return absl::NotFoundError("no unfinished run");
  if (absl::Status s = directory->Lock(); !s.ok()) return s;
  return directory;
}

// `path`, or the first of `path`-2, `path`-3 ..., whose folder of this host is free.
absl::StatusOr<recording::JobRecorder::Place> PlaceAmongHosts(const std::string& path, uint64_t keep_bytes) {
  constexpr int kMost = 10000;
  for (int number = 1; number <= kMost; ++number) {
    const std::string of_all = number == 1 ? path : absl::StrCat(path, "-", number);
    absl::StatusOr<store::Directory> made = store::Directory::Make(recording::FolderOfThisHost(of_all));
    if (!made.ok()) return made.status();
    const absl::StatusOr<std::vector<std::string>> names = made->List();
    if (!names.ok()) return names.status();
    if (!names->empty()) continue;
    if (made->Lock().ok()) return recording::JobRecorder::Place{*std::move(made), keep_bytes, false, of_all};
  }
  return absl::AlreadyExistsError(absl::StrCat(path, " and all that are named like it hold runs"));
}

// Where a job's first process wants its run. A second run with the same GPUPROBE_OUT, or in the same second,
// gets a number, because no user is there to choose another name.
absl::StatusOr<store::Directory> WantedDirectory(const std::string& wanted) {
  absl::StatusOr<store::Directory> made = store::Directory::Make(wanted);
  if (made.ok()) {
    const absl::StatusOr<std::vector<std::string>> names = made->List();
    if (names.ok() && names->empty()) return made;
    made = store::Directory::MakeNew(wanted);
  }
  if (made.ok()) return made;
  const absl::StatusOr<store::Directory> own = OwnFolder();
  if (!own.ok()) return made;
  return own->MakeNewInside(std::filesystem::path(wanted).filename());
}

absl::StatusOr<recording::JobRecorder::Place> FindPlace(const v1::Hello& hello,
                                                        const CollectOptions& options) {
  const bool spans_hosts = recording::LaunchedJobOf(hello.identity()).spans_hosts;
  if (absl::StatusOr<store::Directory> unfinished = UnfinishedRun(hello); unfinished.ok()) {
    const std::filesystem::path path(unfinished->path());
    const bool among_hosts = spans_hosts && path.filename() == recording::NameOfThisHost();
    return recording::JobRecorder::Place{*std::move(unfinished), options.keep.bytes, true,
                                         among_hosts ? path.parent_path().string() : ""};
  }
  std::string wanted = hello.wanted_directory();
  if (!wanted.starts_with('/'))
    wanted = Absolute(options.out.empty()
                          ? store::DefaultRunDirectory(store::RunName(hello.identity()), recording::NowNs())
                          : options.out);
  if (spans_hosts) {
    absl::StatusOr<recording::JobRecorder::Place> place = PlaceAmongHosts(wanted, options.keep.bytes);
    if (place.ok()) return place;
  }
  absl::StatusOr<store::Directory> directory = WantedDirectory(wanted);
  if (!directory.ok()) return directory.status();
  if (absl::Status s = directory->Lock(); !s.ok()) return s;
  return recording::JobRecorder::Place{*std::move(directory), options.keep.bytes, false};
}

// The starter's streams are the profiled program's: holding them open, or writing to them, would be seen.
void LetGoOfStreams() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (null > STDERR_FILENO) close(null);
}

// The process that started this collector holds a lock until it is connected (injector/send/autostart.h).
bool StarterIsGone(const std::string& socket) {
  const int lock = open((socket + ".start").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (lock < 0) return false;
  const bool gone = flock(lock, LOCK_EX | LOCK_NB) == 0;
  close(lock);
  return gone;
}

// Ends by itself when the last run is reported, or when no client comes: the process that adopted this
// collector may wait for it.
void ServeJobs(ingest::Server& server, recording::JobRecorder& jobs, const std::string& socket,
               const bool& stop) {
  Clock::time_point last_client = Clock::now();
  while (!stop) {
    server.Poll(milliseconds(200));
    jobs.Tick();
    if (server.clients() > 0 || jobs.runs() > 0) {
      last_client = Clock::now();
      continue;
    }
    const bool was_used = server.greeted() > 0;
    if (!was_used && !StarterIsGone(socket) && Clock::now() - last_client <= kFirstWait) continue;
    server.Poll(milliseconds(0));  // clients that came in the meantime
    if (server.clients() == 0) return;
  }
}

int Conclude(recording::Recorder& recorder, recording::LivePage& page) {
  if (!recorder.heard_anything()) {
    recorder.RemoveIfEmpty();
    SayError("no process connected; nothing was recorded");
    return kDone;
  }
  const analysis::Report report = recorder.Finish({});
  const absl::Status& written = recorder.report_written();
  const std::string text =
      render::TextReport(report, written.ok() ? recorder.directory() + "/report.html" : "",
                         render::Layout(ScreenOf(STDOUT_FILENO, /*no_color=*/false)));
  PrintForPeople(text);
  FlushOutput();
  page.Conclude(recorder.job(), report, recorder.Files());
  return written.ok()
             ? kDone
             : Fail(kCollect, absl::StrCat("could not save the report: ", std::string(written.message())),
                    kFailed);
}

// Until a signal: the runs of all users, each reported when its last client has gone.
int CollectForNode(const CollectOptions& options) {
  if (geteuid() != 0) {
    return Fail(kCollect,
                "--node needs root: programs trust only a collector run by their own user or by root; run it "
                "as root, or drop --node to record your own programs",
                kFailed);
  }
  // Hangs are several lines.
  const auto say = [](const std::string& line) {
    std::fputs(absl::StrCat("gpuprobe: ", text::PrintableLines(line), "\n").c_str(), stderr);
  };
  const absl::StatusOr<std::unique_ptr<recording::node::Collector>> collector =
      recording::node::Collector::Start({.socket = options.socket,
                                         .directory = options.out.empty() ? kNodeRuns : options.out,
                                         .quota = {.disk_bytes = options.user_disk,
                                                   .memory_bytes = options.user_memory,
                                                   .keep_bytes = options.keep.bytes},
                                         .recording = {.ranks = options.rank_options,
                                                       .marker = options.marker,
                                                       .joins_hosts = !options.hub.empty(),
                                                       .hub = options.hub}},
                                        say);
  if (!collector.ok()) return Fail(kCollect, collector.status(), kFailed);
  say(absl::StrCat("collecting for all users on ", options.socket,
                   options.hub.empty() ? "" : absl::StrCat(", and sending each job to ", options.hub)));
  (*collector)->Serve();
  if (!(*collector)->served_anybody()) say("no process connected; nothing was recorded");
  return kDone;
}

absl::Status StopOnSignal(ingest::Server& server, recording::SignalFd& signals, bool& stop) {
  return server.Watch(signals.fd(), [&] { signals.ReadAll([&](const signalfd_siginfo&) { stop = true; }); });
}

// Leaves the program's folder, which may be removed or its file system unmounted. Relative paths become
// absolute. If that makes the socket's path too long, we stay in the folder.
void LeaveFolder(CollectOptions& options) {
  constexpr size_t kLongestSocketPath = 107;
  const std::string socket = Absolute(options.socket);
  if (socket.size() > kLongestSocketPath) return;
  const std::string out = options.out.empty() ? "" : Absolute(options.out);
  if (chdir("/") != 0) return;
  options.socket = socket;
  options.out = out;
}

// For the processes of this user that found no collector: a run for each of their jobs.
int CollectAutostarted(const CollectOptions& options) {
  recording::JobRecorder jobs(
      {.ranks = options.rank_options, .marker = options.marker, .processes_tell = true, .joins_hosts = true},
      [&](const v1::Hello& hello) { return FindPlace(hello, options); }, [](const std::string&) {});
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      options.socket, [&](const v1::Hello& hello, std::string_view raw) { return jobs.Open(hello, raw); },
      {.refuses_parent = true});
  if (!server.ok()) return Fail(kCollect, server.status(), kFailed);
  (*server)->AnswerRequests([&](const v1::CaptureRequest& request) { return jobs.OpenCapture(request); });
  absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kCollect, signals.status(), kFailed);
  bool stop = false;
  if (absl::Status s = StopOnSignal(**server, *signals, stop); !s.ok()) return Fail(kCollect, s, kFailed);
  LetGoOfStreams();
  RunAtOrdinaryPriority();
  ServeJobs(**server, jobs, options.socket, stop);
  (*server)->Drain(milliseconds(300), milliseconds(3000));
  (*server)->SayEnded();
  server->reset();  // before the last report: processes that come now start another one
  jobs.Finish();
  return kDone;
}

// Everything that connects, in one run, until a signal.
int CollectOneRun(const CollectOptions& options) {
  absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kCollect, signals.status(), kFailed);
  absl::StatusOr<std::unique_ptr<http::Server>> listening = options.http.Listen();
  if (!listening.ok()) return Fail(kCollect, listening.status(), kFailed);
  recording::LivePage page(*std::move(listening), {});
  absl::StatusOr<std::unique_ptr<recording::Recorder>> recorder =
      recording::Recorder::CreateOrResume(options.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kCollect, recorder.status(), kFailed);
  (*recorder)->WatchForHangs(options.rank_options, [](const std::string& text) { log::SayForPeople(text); });
  (*recorder)->SetStepMarker(options.marker);
  const absl::Status resumed = (*recorder)->Resume([](const std::string& line) { SayError(line); });
  if (!resumed.ok()) return Fail(kCollect, resumed, kFailed);
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      options.socket,
      [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); });
  if (!server.ok()) {
    (*recorder)->RemoveIfEmpty();
    return Fail(kCollect, server.status(), kFailed);
  }
  (*server)->AnswerRequests(
      [&](const v1::CaptureRequest& request) { return (*recorder)->OpenCapture(request); });
  bool stop = false;
  if (absl::Status s = StopOnSignal(**server, *signals, stop); !s.ok()) return Fail(kCollect, s, kFailed);
  page.Start();
  SayError(absl::StrCat("collecting on ", options.socket, recording::LiveWords(page)));
  while (!stop) {  // NOLINT(bugprone-infinite-loop): a signal sets it
    (*server)->Poll(page.Patience(**recorder));
    (*recorder)->Tick();
    page.Tick(**recorder, **server);
  }
  (*server)->Drain(milliseconds(300), milliseconds(3000));
  (*server)->SayEnded();
  server->reset();  // before the report: processes that come now start another one
  return Conclude(**recorder, page);
}

}  // namespace

int CollectMain(const Arguments& arguments) {
  CLI::App app("Records every process of this user until SIGTERM or SIGINT, then reports",
               "gpuprobe collect");
  CollectOptions options;
  app.add_option("--socket", options.socket,
                 "Unix socket to listen on [$GPUPROBE_SOCKET; else $XDG_RUNTIME_DIR/gpuprobe/collector.sock; "
                 "else /tmp/gpuprobe-$UID/collector.sock]")
      ->check(NotEmpty());
  app.add_option("--out", options.out,
                 "run directory [gpuprobe-runs/<UTC time>-<name>]; with --node: parent of the users' "
                 "directories [/var/log/gpuprobe]")
      ->check(NotEmpty());
  app.add_flag("--node", options.node,
               "serve every user of this node (as root); each run belongs to its user alone, in DIR/USER/");
  app.add_option("--hub", options.hub,
                 "with --node: the gpuprobe hub that receives each job whose user can prove to be its user, "
                 "and that names no other (GPUPROBE_HUB)")
      ->check(NotEmpty())
      ->option_text("HOST[:PORT]");
  options.keep.AddTo(app);
  app.add_option(
         "--user-disk", options.user_disk,
         absl::StrCat("with --node: disk space for one user's runs; beyond it, new runs are refused [",
                      analysis::Bytes(recording::node::kDefaultUserDisk), "]"))
      ->transform(Size(recording::node::kSmallestRun, UINT64_MAX))
      ->option_text("SIZE");
  app.add_option(
         "--user-memory", options.user_memory,
         absl::StrCat(
             "with --node: memory for recording one user's runs; beyond it, they are ended and reported [",
             analysis::Bytes(recording::node::kDefaultUserMemory), "]"))
      ->transform(Size(uint64_t{64} << 20, uint64_t{1} << 50))
      ->option_text("SIZE");
  options.rank_options.AddTo(app);
  options.marker.AddTo(app);
  app.add_flag("--autostarted", options.autostarted,
               "exit after the last client disconnects, and print nothing");
  options.http.AddTo(app, "--http", "serve the page of the run, metrics and a JSON API, while it records,");
  if (const auto code = Parse(app, arguments)) return *code;
  if (options.socket.empty())
    options.socket = options.node ? ingest::kNodeSocketPath : ingest::DefaultSocketPath();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  if (options.http.address.has_value() && (options.node || options.autostarted)) {
    return Fail(
        kCollect,
        "--http serves one run; --node and --autostarted record many (a finished one: gpuprobe report "
        "DIR --serve)",
        kUsage);
  }
  if (!options.hub.empty() && !options.node)
    return Fail(kCollect, "--hub goes with --node; for jobs of your own, set GPUPROBE_HUB where they run",
                kUsage);
  if (const absl::string_view url = options.hub; absl::StartsWith(url, kHttps))
    options.hub = std::string(url.substr(kHttps.size()));
  if (!recording::IsHub(options.hub))
    return Fail(kCollect, absl::StrCat("--hub must be HOST or HOST:PORT, got \"", options.hub, "\""), kUsage);
  if (options.node) return CollectForNode(options);
  if (!options.autostarted) return CollectOneRun(options);
  LeaveFolder(options);
  return CollectAutostarted(options);
}

}  // namespace gpuprobe::cli
