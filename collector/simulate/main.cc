// gpuprobe-simulate, which `gpuprobe simulate` executes: simulates the job of a request and feeds its records
// to a collector, that of --socket or its own.
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/simulate/cluster_directory.h"
#include "collector/simulate/feed.h"
#include "collector/simulate/many_hosts.h"
#include "collector/simulate/request.h"
#include "collector/simulate/simulation.h"
#include "collector/text/characters.h"

namespace gpuprobe::simulate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kConnectPatience{20'000};
// Exit codes are those of gpuprobe (collector/cli/command.h).
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "gpuprobe: simulate: %s\n", text::Printable(std::string(status.message())).c_str());
  return code;
}

// `gpuprobe collect` in a process of its own, so that its resources can be distinguished from ours.
class OwnCollector {
 public:
  static absl::StatusOr<std::unique_ptr<OwnCollector>> Start(const Request& request) {
    std::string folder = "/tmp/gpuprobe-simulate-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr)
      return absl::UnavailableError(absl::StrCat(folder, ": ", std::strerror(errno)));
    std::unique_ptr<OwnCollector> collector(new OwnCollector(folder));
    std::vector<std::string> arguments = {"gpuprobe", "collect", "--socket", collector->socket()};
    arguments.insert(arguments.end(), request.collect.begin(), request.collect.end());
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error =
        posix_spawn(&collector->pid_, request.collector.c_str(), nullptr, nullptr, argv.data(), environ);
    if (error != 0)
      return absl::UnavailableError(absl::StrCat("cannot start a collector: ", std::strerror(error)));
    return collector;
  }
  ~OwnCollector() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    Reap(0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  OwnCollector(const OwnCollector&) = delete;
  OwnCollector& operator=(const OwnCollector&) = delete;

  std::string socket() const { return folder_ + "/collector.sock"; }
  bool Alive() {
    Reap(WNOHANG);
    return pid_ > 0;
  }
  // Lets it report. Its exit code.
  int Stop() {
    if (pid_ > 0) kill(pid_, SIGTERM);
    Reap(0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : kFailed;
  }
  const rusage& used() const { return used_; }

 private:
  explicit OwnCollector(std::string folder) : folder_(std::move(folder)) {}
  void Reap(int flags) {
    if (pid_ > 0 && wait4(pid_, &status_, flags, &used_) == pid_) pid_ = -1;
  }

  std::string folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  rusage used_{};
};

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

SimulationOptions OptionsOf(const Request& request) {
  SimulationOptions options;
  options.name = std::string(request.scenario->name);
  options.command_line = request.command_line;
  options.seed = request.seed;
  options.uid = getuid();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  if (request.real_time)
    options.epoch_ns =
        static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return options;
}

absl::Status Run(Simulation& simulation, Feed& feed, bool real_time) {
  const Clock::time_point begin = Clock::now();
  return simulation.Run([&](int rank, int64_t now_ns, std::string_view bytes, bool last) -> absl::Status {
    if (real_time) std::this_thread::sleep_until(begin + std::chrono::nanoseconds(now_ns));
    if (absl::Status s = feed.Send(static_cast<size_t>(rank), bytes); !s.ok()) return s;
    if (last) feed.Finish(static_cast<size_t>(rank));
    return absl::OkStatus();
  });
}

int SimulateCluster(const Request& request) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const absl::Status written = WriteClusterDay(
      {.seed = request.seed,
       .jobs = request.jobs,
       .hours = request.hours,
       .ends_ns = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()),
       .directory = request.directory,
       .uid = getuid(),
       .command_line = request.command_line});
  if (!written.ok()) return Fail(written, kFailed);
  std::fprintf(stderr, "gpuprobe: simulated %d jobs of %g hours; gpuprobe hub --out %s reports them\n",
               request.jobs, request.hours, text::Printable(request.directory).c_str());
  return kDone;
}

int Simulate(const Request& request) {
  if (request.cluster) return SimulateCluster(request);
  if (request.hosts > 0) {
    const absl::Status rolled_up = RollUpManyHosts(request.job, OptionsOf(request),
                                                   {.hosts = request.hosts, .directory = request.directory});
    return rolled_up.ok() ? kDone : Fail(rolled_up, kFailed);
  }
  std::unique_ptr<OwnCollector> own;
  if (request.socket.empty()) {
    absl::StatusOr<std::unique_ptr<OwnCollector>> started = OwnCollector::Start(request);
    if (!started.ok()) return Fail(started.status(), kFailed);
    own = *std::move(started);
  }
  Simulation simulation(request.job, OptionsOf(request), nullptr);
  Feed feed(own == nullptr ? request.socket : own->socket());
  const absl::Status connected = feed.Connect(static_cast<size_t>(request.job.ranks), kConnectPatience,
                                              [&] { return own == nullptr || own->Alive(); });
  // A collector of our own that is gone has said why.
  if (!connected.ok() && own != nullptr && !own->Alive()) return own->Stop();
  if (!connected.ok()) return Fail(connected, kFailed);
  const Clock::time_point begin = Clock::now();
  if (absl::Status s = Run(simulation, feed, request.real_time); !s.ok()) return Fail(s, kFailed);
  feed.AwaitRead();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const int code = own == nullptr ? kDone : own->Stop();
  std::string line = absl::StrFormat(
      "gpuprobe: simulated %d ranks, %d steps, %.1f s of training: %d records in %.2f s", request.job.ranks,
      request.job.steps, static_cast<double>(simulation.ended_ns()) * 1e-9, simulation.records(), seconds);
  if (own != nullptr) {
    const rusage& used = own->used();
    absl::StrAppendFormat(&line, "; the collector used %.2f s of CPU and %.1f MiB",
                          Seconds(used.ru_utime) + Seconds(used.ru_stime),
                          static_cast<double>(used.ru_maxrss) / 1024);
  }
  std::fprintf(stderr, "%s\n", line.c_str());
  return code;
}

}  // namespace
}  // namespace gpuprobe::simulate

int main(int argc, char** argv) {
  namespace simulate = gpuprobe::simulate;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const absl::StatusOr<simulate::Request> request = simulate::ReadRequest(arguments);
  if (!request.ok()) return simulate::Fail(request.status(), simulate::kUsage);
  std::signal(SIGPIPE, SIG_IGN);
  return simulate::Simulate(*request);
}
