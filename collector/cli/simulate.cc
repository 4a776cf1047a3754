#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/feed.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/recorder.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/wrapped_help.h"
#include "collector/simulate/scenarios.h"
#include "collector/simulate/simulation.h"
#include "collector/simulate/truth.h"
#include "collector/store/directory.h"

namespace gpuprobe::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kSimulate[] = "simulate";
constexpr std::chrono::milliseconds kConnectPatience{20'000};

struct SimulateOptions {
  std::string scenario;
  bool list = false;
  std::optional<int> ranks;
  std::optional<int> steps;
  std::optional<int> layers;
  std::optional<int> ranks_per_host;
  std::optional<double> work;
  std::optional<int> slow_rank;
  std::optional<double> slow_factor;
  std::optional<double> slow_from;
  std::optional<int> slow_every;
  std::optional<int> slow_for;
  std::optional<int> leak_mib;
  std::optional<int> tensor;
  std::optional<int> pipeline;
  std::optional<int> microbatches;
  bool sharded = false;
  bool graph = false;
  bool nvtx = false;
  std::optional<double> noise;
  std::optional<double> link;
  std::optional<int> bucket_mib;
  std::optional<double> network;
  std::optional<double> network_slowdown;
  std::optional<double> network_from;
  std::optional<int> network_host;
  uint64_t seed = 1;
  std::string out;
  std::string truth;
  std::string socket;
  bool real_time = false;
  KeepOption keep;
};

int List() {
  std::string text;
  for (const simulate::Scenario& scenario : simulate::Scenarios())
    absl::StrAppendFormat(&text, "%-24s %s\n", std::string(scenario.name), std::string(scenario.summary));
  Print(WrappedFor(STDOUT_FILENO, text));
  return kDone;
}

// Our own `gpuprobe collect` in another process, so that its resources can be distinguished from ours.
class OwnCollector {
 public:
  static absl::StatusOr<std::unique_ptr<OwnCollector>> Start(const SimulateOptions& options) {
    std::string folder = "/tmp/gpuprobe-simulate-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr)
      return absl::UnavailableError(absl::StrCat(folder, ": ", std::strerror(errno)));
    std::unique_ptr<OwnCollector> collector(new OwnCollector(folder));
    std::vector<std::string> arguments = {"gpuprobe",          "collect", "--socket",
                                          collector->socket(), "--keep",  absl::StrCat(options.keep.bytes)};
    if (!options.out.empty()) arguments.insert(arguments.end(), {"--out", options.out});
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const int error = posix_spawn(&collector->pid_, "/proc/self/exe", nullptr, nullptr, argv.data(), environ);
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

// Another shape than the scenario's.
void Reshape(const SimulateOptions& options, simulate::TrainingJob& job) {
  job.ranks = options.ranks.value_or(job.ranks);
  job.steps = options.steps.value_or(job.steps);
  job.layers = options.layers.value_or(job.layers);
  job.ranks_per_host = options.ranks_per_host.value_or(job.ranks_per_host);
  job.work *= options.work.value_or(1);
  job.tensor = options.tensor.value_or(job.tensor);
  job.pipeline = options.pipeline.value_or(job.pipeline);
  job.microbatches = options.microbatches.value_or(job.microbatches);
  job.sharded |= options.sharded;
  job.graph |= options.graph;
  job.nvtx |= options.nvtx;
  job.kernel_noise *= options.noise.value_or(1);
  job.host_noise *= options.noise.value_or(1);
  job.call_noise *= options.noise.value_or(1);
}

// Another rank at fault than the scenario's, at another time.
void MoveFault(const SimulateOptions& options, simulate::TrainingJob& job) {
  job.slow_rank = options.slow_rank.value_or(job.slow_rank);
  job.slow_from = options.slow_from.value_or(job.slow_from);
  if (job.hang == simulate::HangBy::kNothing) return;
  job.hang_rank = options.slow_rank.value_or(job.hang_rank);
  if (options.slow_from.has_value())
    job.hang_step = std::min(static_cast<int>(*options.slow_from * job.steps), job.steps - 1);
}

// Faults other than the scenario's.
void Vary(const SimulateOptions& options, simulate::TrainingJob& job) {
  job.slow_factor = options.slow_factor.value_or(job.slow_factor);
  job.slow_every = options.slow_every.value_or(job.slow_every);
  job.slow_for = options.slow_for.value_or(job.slow_for);
  if (options.leak_mib.has_value()) job.leak_bytes = static_cast<uint64_t>(*options.leak_mib) << 20;
  if (options.slow_factor.has_value() && job.slow_by == simulate::SlowBy::kNothing)
    job.slow_by = simulate::SlowBy::kKernels;
  if (options.link.has_value()) job.link.beta_bytes_per_ns = *options.link;
  if (options.bucket_mib.has_value()) {
    job.bucket_bytes = static_cast<uint64_t>(*options.bucket_mib) << 20;
    job.first_bucket_bytes = std::min(job.first_bucket_bytes, job.bucket_bytes);
  }
  if (options.network.has_value()) {
    job.network = job.link;
    job.network->beta_bytes_per_ns = *options.network;
  }
  job.network_slowdown = options.network_slowdown.value_or(job.network_slowdown);
  job.network_from = options.network_from.value_or(job.network_from);
  job.network_host = options.network_host.value_or(job.network_host);
}

simulate::TrainingJob JobOf(const simulate::Scenario& scenario, const SimulateOptions& options) {
  simulate::TrainingJob job = scenario.job;
  Reshape(options, job);
  MoveFault(options, job);
  Vary(options, job);
  return job;
}

absl::Status Check(const simulate::TrainingJob& job) {
  if (job.ranks % (job.tensor * job.pipeline) != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks must be a multiple of ", job.tensor * job.pipeline));
  if (job.layers % job.pipeline != 0)
    return absl::InvalidArgumentError(absl::StrCat("--layers must be a multiple of ", job.pipeline));
  if (job.data() < 2 && (job.sharded || job.zero > 0))
    return absl::InvalidArgumentError(
        "sharding weights or optimizer state needs at least 2 data-parallel ranks");
  const int last_slow = job.slow_rank + job.slow_ranks - 1;
  if (last_slow >= job.ranks || job.hang_rank >= job.ranks || job.other_ranks >= job.ranks)
    return absl::InvalidArgumentError(absl::StrCat("this scenario needs at least ",
                                                   1 + std::max({last_slow, job.hang_rank, job.other_ranks}),
                                                   " ranks"));
  return absl::OkStatus();
}

absl::Status Run(simulate::Simulation& simulation, Feed& feed, bool real_time) {
  const Clock::time_point begin = Clock::now();
  return simulation.Run([&](int rank, int64_t now_ns, std::string_view bytes, bool last) -> absl::Status {
    if (real_time) std::this_thread::sleep_until(begin + std::chrono::nanoseconds(now_ns));
    if (absl::Status s = feed.Send(static_cast<size_t>(rank), bytes); !s.ok()) return s;
    if (last) feed.Finish(static_cast<size_t>(rank));
    return absl::OkStatus();
  });
}

int Simulate(const simulate::Scenario& scenario, const SimulateOptions& options) {
  const simulate::TrainingJob job = JobOf(scenario, options);
  if (absl::Status s = Check(job); !s.ok()) return Fail(kSimulate, std::string(s.message()), kUsage);
  std::unique_ptr<OwnCollector> own;
  std::string socket = options.socket;
  if (socket.empty()) {
    absl::StatusOr<std::unique_ptr<OwnCollector>> started = OwnCollector::Start(options);
    if (!started.ok()) return Fail(kSimulate, started.status(), kFailed);
    own = *std::move(started);
    socket = own->socket();
  }
  simulate::SimulationOptions simulation_options;
  simulation_options.name = std::string(scenario.name);
  simulation_options.command_line = {"gpuprobe", "simulate", "--scenario", std::string(scenario.name)};
  simulation_options.seed = options.seed;
  simulation_options.uid = getuid();
  if (options.real_time) simulation_options.epoch_ns = NowNs();
  std::optional<simulate::Truth> truth;
  if (!options.truth.empty()) truth.emplace(job);
  simulate::Simulation simulation(job, simulation_options, truth ? &*truth : nullptr);
  Feed feed(socket);
  const absl::Status connected = feed.Connect(static_cast<size_t>(job.ranks), kConnectPatience,
                                              [&] { return own == nullptr || own->Alive(); });
  if (!connected.ok()) return Fail(kSimulate, connected, kFailed);
  const Clock::time_point begin = Clock::now();
  if (absl::Status s = Run(simulation, feed, options.real_time); !s.ok()) return Fail(kSimulate, s, kFailed);
  feed.AwaitRead();
  if (truth) {
    truth->Finish();
    const absl::StatusOr<store::Directory> folder = store::Directory::Make(options.truth);
    if (!folder.ok()) return Fail(kSimulate, folder.status(), kFailed);
    const absl::Status written = folder->WriteFile("truth.json", truth->Json(scenario, simulation) + "\n");
    if (!written.ok()) return Fail(kSimulate, written, kFailed);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const int code = own == nullptr ? kDone : own->Stop();
  std::string line = absl::StrFormat(
      "gpuprobe: simulated %d ranks, %d steps, %.1f s of training: %d records in %.2f s", job.ranks,
      job.steps, static_cast<double>(simulation.ended_ns()) * 1e-9, simulation.records(), seconds);
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

int SimulateMain(const Arguments& arguments) {
  CLI::App app("Simulates a training job and feeds its records to a real collector", "gpuprobe simulate");
  SimulateOptions options;
  const CLI::Range factor_range(0.001, 10'000.0);
  const CLI::Range rate_range(0.001, 100'000.0);
  app.add_flag("--list", options.list, "list the scenarios");
  app.add_option("--scenario", options.scenario, "name of the scenario (see --list)");
  app.add_option("--ranks", options.ranks, "number of ranks [the scenario's]")->check(WholeNumber(1, 16384));
  app.add_option("--steps", options.steps, "training steps [the scenario's]")
      ->check(WholeNumber(1, 10'000'000));
  app.add_option("--layers", options.layers, "layers of the model [the scenario's]")
      ->check(WholeNumber(1, 10'000));
  app.add_option("--ranks-per-host", options.ranks_per_host, "ranks per host [the scenario's]")
      ->check(WholeNumber(1, 16384));
  app.add_option("--work", options.work, "factor on the duration of every kernel [1]")->check(factor_range);
  app.add_option("--tensor", options.tensor,
                 "ranks that share each layer (tensor parallelism) [the scenario's]")
      ->check(WholeNumber(1, 16384));
  app.add_option("--pipeline", options.pipeline, "pipeline stages [the scenario's]")
      ->check(WholeNumber(1, 1024));
  app.add_option("--microbatches", options.microbatches, "microbatches per step [the scenario's]")
      ->check(WholeNumber(1, 4096));
  app.add_flag("--sharded", options.sharded, "shard weights and gradients as FSDP does");
  app.add_flag("--graph", options.graph, "run the step as a replayed CUDA graph");
  app.add_flag("--nvtx", options.nvtx, "annotate steps and phases with NVTX");
  app.add_option("--noise", options.noise, "factor on the variation of kernels, launches and transfers [1]")
      ->check(factor_range);
  app.add_option("--slow-rank", options.slow_rank, "the rank at fault [the scenario's]")
      ->check(WholeNumber(0, 16383));
  app.add_option("--slow-factor", options.slow_factor, "slowdown factor of that rank [the scenario's]")
      ->check(factor_range);
  app.add_option("--slow-from", options.slow_from,
                 "fraction of the steps before the fault begins, 0 to 1 [the scenario's]")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--slow-every", options.slow_every,
                 "period in steps, of which --slow-for in a row are slow [the scenario's]")
      ->check(WholeNumber(1, 10'000'000));
  app.add_option("--slow-for", options.slow_for, "slow steps in a row [the scenario's]")
      ->check(WholeNumber(1, 10'000'000));
  app.add_option("--leak", options.leak_mib, "MiB leaked per step [the scenario's]")
      ->check(WholeNumber(0, 65536));
  app.add_option("--bucket", options.bucket_mib, "bucket size for reducing gradients, MiB [the scenario's]")
      ->check(WholeNumber(1, 65536));
  app.add_option("--link", options.link, "bandwidth between ranks of a host, GB/s [the scenario's]")
      ->check(rate_range);
  app.add_option("--network", options.network, "bandwidth of communicators that span hosts, GB/s [as --link]")
      ->check(rate_range);
  app.add_option("--network-slowdown", options.network_slowdown,
                 "slowdown factor of the network between hosts [1]")
      ->check(factor_range);
  app.add_option("--network-from", options.network_from,
                 "fraction of the steps before that slowdown begins [0]")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--network-host", options.network_host,
                 "the one host whose network slows down, counted from 0 [all]")
      ->check(WholeNumber(0, 16383));
  app.add_option("--seed", options.seed, "random seed [1]")->check(WholeNumber(0, UINT64_MAX));
  app.add_option("--out", options.out, "run directory [gpuprobe-runs/<UTC time>-<name>]")->check(NotEmpty());
  app.add_option("--truth", options.truth,
                 "folder for truth.json: the expected report, computed from the schedule")
      ->check(NotEmpty());
  app.add_option("--socket", options.socket, "socket of a running collector [starts its own]")
      ->excludes("--out");
  app.add_flag("--real-time", options.real_time,
               "run at the job's own pace [as fast as the collector reads]");
  options.keep.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (options.list) return List();
  if (options.scenario.empty()) return Fail(kSimulate, "--scenario is required; --list shows them", kUsage);
  const absl::StatusOr<const simulate::Scenario*> scenario = simulate::FindScenario(options.scenario);
  if (!scenario.ok()) {
    std::vector<std::string> names;
    for (const simulate::Scenario& each : simulate::Scenarios()) names.emplace_back(each.name);
    const std::string near = DidYouMean(options.scenario, names);
    return Fail(kSimulate,
                near.empty() ? std::string(scenario.status().message())
                             : absl::StrCat("no scenario \"", options.scenario, "\"", near),
                kUsage);
  }
  std::signal(SIGPIPE, SIG_IGN);
  return Simulate(**scenario, options);
}

}  // namespace gpuprobe::cli
