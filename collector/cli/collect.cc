#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/node_recorder.h"
#include "collector/cli/recorder.h"
#include "collector/cli/signals.h"
#include "collector/ingest/endpoint.h"
#include "collector/ingest/server.h"
#include "collector/render/text_report.h"

namespace gpuprobe::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr char kName[] = "collect";
// A collector that was started by a rank stays for the other ranks, which may come a little later or leave
// and come back.
constexpr milliseconds kGoneWait{2000};
constexpr milliseconds kFirstWait{15000};
constexpr char kNodeRuns[] = "/var/log/gpuprobe";  // where --node records

struct Options {
  std::string socket;
  std::string out;
  bool autostarted = false;
  bool node = false;
  KeepOption keep;
  RankOptions rank_options;
  StepMarkerOption marker;
};

// A second run with the same GPUPROBE_OUT, or in the same second, gets a number: nobody is there to choose
// another name.
std::string AutostartedDirectory(std::string out) {
  if (out.empty()) {
    const char* setting = std::getenv("GPUPROBE_OUT");
    out = setting == nullptr ? "" : setting;
  }
  std::string path = out;
  for (int i = 2; std::filesystem::exists(path) && !std::filesystem::is_empty(path); ++i)
    path = absl::StrCat(out, "-", i);
  return path;
}

// The starter's streams are the profiled program's: holding them open, or writing to them, would be seen.
void LetGoOfStreams() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
  if (null > STDERR_FILENO) close(null);
}

void Serve(ingest::Server& server, Recorder& recorder, bool autostarted, const bool& stop) {
  Clock::time_point last_client = Clock::now();
  while (!stop) {
    server.Poll(milliseconds(200));
    recorder.Tick();
    if (!autostarted) continue;
    if (server.clients() > 0) last_client = Clock::now();
    const milliseconds patience = server.greeted() > 0 ? kGoneWait : kFirstWait;
    if (Clock::now() - last_client > patience) return;
  }
}

int Conclude(Recorder& recorder, bool autostarted) {
  if (!recorder.heard_anything()) {
    recorder.RemoveIfEmpty();
    if (!autostarted) std::fprintf(stderr, "gpuprobe: no process connected; nothing was recorded\n");
    return kDone;
  }
  const absl::StatusOr<analysis::Report> report = recorder.Finish({});
  if (!report.ok()) return Fail(kName, report.status(), kFailed);
  if (autostarted) return kDone;
  const std::string text = render::TextReport(*report, recorder.directory() + "/report.html");
  std::fputs(text.c_str(), stdout);
  return kDone;
}

// Until a signal: the runs of all users, each reported when its last client has gone.
int CollectForNode(const Options& options, SignalFd& signals) {
  if (geteuid() != 0) {
    return Fail(kName,
                "--node needs root: programs only trust a collector of their own user's or root's; run it as "
                "root, or without --node for your own programs",
                kFailed);
  }
  const auto say = [](const std::string& line) { std::fprintf(stderr, "gpuprobe: %s\n", line.c_str()); };
  absl::StatusOr<std::unique_ptr<NodeRecorder>> recorder = NodeRecorder::Create(
      options.out.empty() ? kNodeRuns : options.out,
      {.keep = options.keep, .ranks = options.rank_options, .marker = options.marker}, say);
  if (!recorder.ok()) return Fail(kName, recorder.status(), kFailed);
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::StartForNode(
      options.socket, [&](uid_t user, const v1::Hello& hello, std::string_view raw) {
        return (*recorder)->Open(user, hello, raw);
      });
  if (!server.ok()) return Fail(kName, server.status(), kFailed);
  bool stop = false;
  const absl::Status watched =
      (*server)->Watch(signals.fd(), [&] { signals.ReadAll([&](const signalfd_siginfo&) { stop = true; }); });
  if (!watched.ok()) return Fail(kName, watched, kFailed);
  say(absl::StrCat("collecting for all users on ", options.socket));
  while (!stop) {
    (*server)->Poll(milliseconds(200));
    (*recorder)->Tick();
  }
  (*server)->Drain(milliseconds(300), milliseconds(3000));
  server->reset();
  (*recorder)->Finish();
  if ((*recorder)->concluded() == 0) say("no process connected; nothing was recorded");
  return kDone;
}

}  // namespace

int CollectMain(const Arguments& arguments) {
  CLI::App app("Collects from every process of this user until SIGTERM or SIGINT, then reports",
               "gpuprobe collect");
  Options options;
  app.add_option("--socket", options.socket,
                 "Unix socket to listen on [" + ingest::DefaultSocketPath() + "]");
  app.add_option(
      "--out", options.out,
      "run directory [gpuprobe-runs/<UTC time>-<name>]; with --node: where the users' directories are "
      "[/var/log/gpuprobe]");
  app.add_flag("--node", options.node,
               "serve every user of this node (as root); each run is its user's alone, in DIR/USER/");
  options.keep.AddTo(app);
  options.rank_options.AddTo(app);
  options.marker.AddTo(app);
  app.add_flag("--autostarted", options.autostarted,
               "end by itself after the last client has gone, and print nothing");
  if (const auto code = Parse(app, arguments)) return *code;
  if (options.socket.empty())
    options.socket = options.node ? ingest::kNodeSocketPath : ingest::DefaultSocketPath();
  if (options.autostarted) options.out = AutostartedDirectory(options.out);

  absl::StatusOr<SignalFd> signals = SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return Fail(kName, signals.status(), kFailed);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  if (options.node) return CollectForNode(options, *signals);
  absl::StatusOr<std::unique_ptr<Recorder>> recorder = Recorder::Create(options.out, options.keep.bytes);
  if (!recorder.ok()) return Fail(kName, recorder.status(), kFailed);
  (*recorder)->WatchForHangs(options.rank_options,
                             [](const std::string& text) { std::fputs(text.c_str(), stderr); });
  (*recorder)->SetStepMarker(options.marker);
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::Start(
      options.socket,
      [&](const v1::Hello& hello, std::string_view raw) { return (*recorder)->Open(hello, raw); });
  if (!server.ok()) {
    (*recorder)->RemoveIfEmpty();
    return Fail(kName, server.status(), kFailed);
  }
  bool stop = false;
  const absl::Status watched = (*server)->Watch(
      signals->fd(), [&] { signals->ReadAll([&](const signalfd_siginfo&) { stop = true; }); });
  if (!watched.ok()) return Fail(kName, watched, kFailed);
  if (options.autostarted) {
    LetGoOfStreams();
  } else {
    std::fprintf(stderr, "gpuprobe: collecting on %s\n", options.socket.c_str());
  }
  Serve(**server, **recorder, options.autostarted, stop);
  (*server)->Drain(milliseconds(300), milliseconds(3000));
  server->reset();  // the socket is gone before the report is written: who comes now starts anew
  return Conclude(**recorder, options.autostarted);
}

}  // namespace gpuprobe::cli
