#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/build_report.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/output.h"
#include "collector/cli/running_collector.h"
#include "collector/cli/shared_options.h"
#include "collector/framing/frame_decoder.h"
#include "collector/log/log.h"
#include "collector/model/job/job_model.h"
#include "collector/recording/version.h"
#include "collector/store/run_directory.h"
#include "gpuprobe/v1/wire.pb.h"
#include "proto/limits.h"

namespace gpuprobe::cli {
namespace {

constexpr char kCapture[] = "capture";
constexpr uint64_t kDefaultSteps = 5;
constexpr uint64_t kDefaultLimit = 60;
constexpr uint64_t kMostSteps = 100'000;
constexpr uint64_t kMostSeconds = 3600;

struct CaptureOptions {
  std::string run;
  uint64_t steps = kDefaultSteps;
  std::vector<uint32_t> ranks;
  uint64_t wait = 0;
  uint64_t warmup = 0;
  uint64_t limit = kDefaultLimit;
  double seconds = 0;
  uint64_t repeat = 1;
};

v1::CaptureRequest RequestOf(const CaptureOptions& options, const std::string& directory) {
  constexpr uint64_t kMs = 1000;
  v1::CaptureRequest request;
  request.set_protocol_major(wire::kProtocolMajor);
  request.set_run_directory(directory);
  for (const uint32_t rank : options.ranks) request.add_ranks(rank);
  request.set_steps(options.seconds > 0 ? 0 : options.steps);
  request.set_wait(options.wait);
  request.set_warmup(options.warmup);
  request.set_duration_ms(static_cast<uint64_t>(options.seconds * static_cast<double>(kMs)));
  request.set_limit_ms(static_cast<uint32_t>(options.limit * kMs));
  return request;
}

absl::Status SocketError(const std::string& socket) {
  return absl::UnavailableError(absl::StrCat("the run's collector at ", socket, ": ", std::strerror(errno)));
}

absl::StatusOr<int> Connect(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(socket_path, ": the path is too long for a socket"));
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return SocketError(socket_path);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const absl::Status status = SocketError(socket_path);
  close(fd);
  return status;
}

absl::Status SendRequest(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// The last thing that the collector says; what comes before it is printed. Unavailable: the collector has
// gone. `directory`: replaced where what is captured is elsewhere.
absl::StatusOr<v1::CaptureProgress> Follow(int fd, std::string& directory) {
  framing::FrameDecoder decoder;
  std::string buffer(size_t{16} << 10, '\0');
  while (true) {
    const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return absl::UnavailableError(
          "the run's collector has ended; the processes end the capture by themselves");
    decoder.Append({buffer.data(), static_cast<size_t>(n)});
    while (true) {
      const absl::StatusOr<framing::FrameDecoder::Next> next = decoder.Take();
      if (!next.ok()) return next.status();
      if (!next->has_frame) break;
      v1::Frame frame;
      if (!frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size())))
        return absl::DataLossError("the run's collector answers with something that is no frame");
      if (frame.has_control() && !frame.control().refused().empty())
        return absl::FailedPreconditionError(frame.control().refused());
      if (!frame.control().welcome().run_directory().empty())
        directory = frame.control().welcome().run_directory();
      if (!frame.has_capture_progress()) continue;
      if (frame.capture_progress().over()) return frame.capture_progress();
      SayError(absl::StrCat(kCapture, ": ", frame.capture_progress().words()));
    }
  }
}

// What stands out, in one line; empty: nothing can be said.
std::string FirstFinding(const std::string& directory) {
  StepMarkerOption marker;
  marker.TakeFrom(directory);
  model::JobModel job;
  job.SetStepMarker(marker.marker);
  if (!store::ReplaySoFar(directory, job).ok()) return "";
  job.Finish(/*goes_on=*/true);
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  const analysis::Report report = analysis::BuildReport(job, input);
  return report.findings.empty() ? "" : report.findings.front().statement;
}

// From the request to the last thing that the collector says.
absl::StatusOr<v1::CaptureProgress> CaptureOnce(const CaptureOptions& options,
                                                const RunningCollector& collector, std::string& directory) {
  const absl::StatusOr<int> fd = Connect(collector.socket);
  if (!fd.ok()) return fd.status();
  const auto closing = absl::MakeCleanup([&] { close(*fd); });
  v1::Frame frame;
  *frame.mutable_capture_request() = RequestOf(options, collector.directory);
  std::string bytes;
  framing::AppendDelimited(frame.SerializeAsString(), bytes);
  if (absl::Status s = SendRequest(*fd, bytes); !s.ok()) return s;
  return Follow(*fd, directory);
}

int Capture(const CaptureOptions& options) {
  const absl::StatusOr<RunningCollector> collector = FindRunningCollector(options.run);
  if (!collector.ok()) return Fail(kCapture, collector.status(), kFailed);
  std::string directory = collector->directory;  // where the report is
  for (uint64_t done = 0; done < options.repeat; ++done) {
    const absl::StatusOr<v1::CaptureProgress> end = CaptureOnce(options, *collector, directory);
    if (!end.ok()) return Fail(kCapture, end.status(), kFailed);
    if (end->failed()) return Fail(kCapture, end->words(), kFailed);
    PrintForPeople(absl::StrCat(end->words(), "\n"));
    if (!FlushOutput()) return kFailed;
  }
  if (const std::string finding = FirstFinding(directory); !finding.empty())
    PrintForPeople(absl::StrCat("  ", finding, "\n"));
  PrintForPeople(absl::StrCat("  gpuprobe report ", directory, "\n"));
  return FlushOutput() ? kDone : kFailed;
}

}  // namespace

int CaptureMain(const Arguments& arguments) {
  CLI::App app(
      "Records some steps of a job that runs at level idle (gpuprobe run --level idle, or "
      "GPUPROBE_LEVEL=idle), "
      "the same ones on all ranks, into the run that it has. The job goes on, and the capture ends by "
      "itself, also if this command is ended. For a job on several hosts, run it on the host that shows the "
      "job: it captures all of them.",
      "gpuprobe capture");
  CaptureOptions options;
  app.add_option("RUN", options.run, "run directory, or a process of the job [the newest run of this user]")
      ->check(NotEmpty())
      ->option_text("DIR|PID");
  auto* const steps = app.add_option("--steps", options.steps, "how many steps [5]")
                          ->check(WholeNumber(1, kMostSteps))
                          ->option_text("N");
  app.add_option("--seconds", options.seconds,
                 "a window of time instead, for jobs without a step marker and without collectives")
      ->check(AboveZero())
      ->check(CLI::Range(0.0, static_cast<double>(kMostSeconds)).description(""))
      ->excludes(steps)
      ->option_text("S");
  app.add_option("--ranks", options.ranks, "these ranks only, such as 0,7 [all]")
      ->delimiter(',')
      ->check(WholeNumber(0, INT32_MAX))
      ->option_text("RANKS");
  app.add_option("--wait", options.wait, "let so many steps pass first [0]")
      ->check(WholeNumber(0, 1'000'000'000))
      ->option_text("N");
  app.add_option("--warmup", options.warmup,
                 "record and throw away at least so many steps right before the first one [0]")
      ->check(WholeNumber(0, kMostSteps))
      ->option_text("N");
  app.add_option("--repeat", options.repeat,
                 "so many captures, one after the other, each after --wait steps [1]")
      ->check(WholeNumber(1, 1'000'000))
      ->option_text("N");
  app.add_option("--limit", options.limit,
                 "end the capture after so many seconds, wherever the job is then [60]")
      ->check(WholeNumber(1, kMostSeconds))
      ->option_text("SECONDS");
  if (const auto code = Parse(app, arguments)) return *code;
  // The limit is for what takes longer than expected.
  const auto longest = static_cast<double>(options.limit);
  if (options.seconds > longest / 2)
    options.limit = static_cast<uint64_t>(options.seconds * 2) + kDefaultLimit;
  std::signal(SIGPIPE, SIG_IGN);
  return Capture(options);
}

}  // namespace gpuprobe::cli
