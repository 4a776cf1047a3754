#include "collector/simulate/request.h"

#include <algorithm>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gpuprobe::simulate {
namespace {

using Kind = JobOption::Kind;

constexpr double kMostRanks = 16'384;
constexpr double kMostSteps = 10'000'000;
constexpr double kLeastFactor = 0.001;
constexpr double kMostFactor = 10'000;
constexpr double kMostGbPerS = 100'000;

template <auto member>
void Set(TrainingJob& job, double value) {
  job.*member = static_cast<std::remove_reference_t<decltype(job.*member)>>(value);
}

int Whole(double value) { return static_cast<int>(value); }
uint64_t Mebibytes(double value) { return static_cast<uint64_t>(value) * kMiB; }

// A fault can be moved to another rank or time, whatever it is.
void SetSlowRank(TrainingJob& job, double value) {
  job.slow.rank = Whole(value);
  if (job.hang.by != HangBy::kNothing) job.hang.rank = Whole(value);
}
void SetSlowFrom(TrainingJob& job, double value) {
  job.slow.from = value;
  if (job.hang.by != HangBy::kNothing) job.hang.step = std::min(Whole(value * job.steps), job.steps - 1);
}

constexpr JobOption kJobOptions[] = {
    {"ranks", "number of ranks [the scenario's]", Kind::kWhole, 1, kMostRanks, Set<&TrainingJob::ranks>},
    {"steps", "training steps [the scenario's]", Kind::kWhole, 1, kMostSteps, Set<&TrainingJob::steps>},
    {"layers", "layers of the model [the scenario's]", Kind::kWhole, 1, 10'000, Set<&TrainingJob::layers>},
    {"ranks-per-host", "ranks per host [the scenario's]", Kind::kWhole, 1, kMostRanks,
     Set<&TrainingJob::ranks_per_host>},
    {"work", "factor on the duration of every kernel [1]", Kind::kReal, kLeastFactor, kMostFactor,
     [](TrainingJob& job, double value) { job.work *= value; }},
    {"tensor", "ranks that share each layer (tensor parallelism) [the scenario's]", Kind::kWhole, 1,
     kMostRanks, Set<&TrainingJob::tensor>},
    {"pipeline", "pipeline stages [the scenario's]", Kind::kWhole, 1, 1024, Set<&TrainingJob::pipeline>},
    {"microbatches", "microbatches per step [the scenario's]", Kind::kWhole, 1, 4096,
     Set<&TrainingJob::microbatches>},
    {"sharded", "shard weights and gradients as FSDP does", Kind::kFlag, 1, 1, Set<&TrainingJob::sharded>},
    {"graph", "run the step as a replayed CUDA graph", Kind::kFlag, 1, 1, Set<&TrainingJob::graph>},
    {"nvtx", "annotate steps and phases with NVTX", Kind::kFlag, 1, 1, Set<&TrainingJob::nvtx>},
    {"noise", "factor on the variation of kernels, launches and transfers [1]", Kind::kReal, kLeastFactor,
     kMostFactor,
     [](TrainingJob& job, double value) {
       for (double* noise : {&job.noise.kernels, &job.noise.host, &job.noise.calls}) *noise *= value;
     }},
    {"slow-rank", "the rank at fault [the scenario's]", Kind::kWhole, 0, kMostRanks - 1, SetSlowRank},
    {"slow-factor", "slowdown factor of that rank [the scenario's]", Kind::kReal, kLeastFactor, kMostFactor,
     [](TrainingJob& job, double value) {
       job.slow.factor = value;
       if (job.slow.by == SlowBy::kNothing) job.slow.by = SlowBy::kKernels;
     }},
    {"slow-from", "fraction of the steps before the fault begins, 0 to 1 [the scenario's]", Kind::kReal, 0, 1,
     SetSlowFrom},
    {"slow-every", "period in steps, of which --slow-for in a row are slow [the scenario's]", Kind::kWhole, 1,
     kMostSteps, [](TrainingJob& job, double value) { job.slow.every = Whole(value); }},
    {"slow-for", "slow steps in a row [the scenario's]", Kind::kWhole, 1, kMostSteps,
     [](TrainingJob& job, double value) { job.slow.steps = Whole(value); }},
    {"leak", "MiB leaked per step [the scenario's]", Kind::kWhole, 0, 65536,
     [](TrainingJob& job, double value) { job.memory.leak_bytes = Mebibytes(value); }},
    {"bucket", "bucket size for reducing gradients, MiB [the scenario's]", Kind::kWhole, 1, 65536,
     [](TrainingJob& job, double value) {
       job.gradients.bucket_bytes = Mebibytes(value);
       job.gradients.first_bucket_bytes = std::min(job.gradients.first_bucket_bytes, Mebibytes(value));
     }},
    {"link", "bandwidth between ranks of a host, GB/s [the scenario's]", Kind::kReal, kLeastFactor,
     kMostGbPerS, [](TrainingJob& job, double value) { job.link.beta_bytes_per_ns = value; }},
    {"network", "bandwidth of communicators that span hosts, GB/s [as --link]", Kind::kReal, kLeastFactor,
     kMostGbPerS,
     [](TrainingJob& job, double value) {
       job.network.link = {.alpha_ns = job.link.alpha_ns, .beta_bytes_per_ns = value};
     }},
    {"network-slowdown", "slowdown factor of the network between hosts [1]", Kind::kReal, kLeastFactor,
     kMostFactor, [](TrainingJob& job, double value) { job.network.slowdown = value; }},
    {"network-from", "fraction of the steps before that slowdown begins [0]", Kind::kReal, 0, 1,
     [](TrainingJob& job, double value) { job.network.from = value; }},
    {"network-host", "the one host whose network slows down, counted from 0 [all]", Kind::kWhole, 0,
     kMostRanks - 1, [](TrainingJob& job, double value) { job.network.host = Whole(value); }},
};

absl::Status CheckJob(const TrainingJob& job) {
  if (job.ranks % (job.tensor * job.pipeline) != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks must be a multiple of ", job.tensor * job.pipeline));
  if (job.layers % job.pipeline != 0)
    return absl::InvalidArgumentError(absl::StrCat("--layers must be a multiple of ", job.pipeline));
  if (job.data() < 2 && (job.sharded || job.zero > 0))
    return absl::InvalidArgumentError(
        "sharding weights or optimizer state needs at least 2 data-parallel ranks");
  const int last = std::max({job.slow.rank + job.slow.ranks - 1, job.hang.rank, job.other.ranks});
  if (last >= job.ranks)
    return absl::InvalidArgumentError(absl::StrCat("this scenario needs at least ", 1 + last, " ranks"));
  return absl::OkStatus();
}

}  // namespace

std::span<const JobOption> JobOptions() { return kJobOptions; }

absl::StatusOr<Request> ReadRequest(std::span<const std::string> arguments) {
  std::map<std::string, std::string> given;
  for (const std::string& argument : arguments) {
    const size_t end = argument.find('=');
    if (!argument.starts_with("--") || end == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat("not --name=value: ", argument));
    given[argument.substr(2, end - 2)] = argument.substr(end + 1);
  }
  // The option's value, which then is dealt with; empty: it was not given.
  const auto take = [&](std::string_view name) {
    auto option = given.extract(std::string(name));
    return option.empty() ? std::string() : option.mapped();
  };
  Request request;
  request.cluster = !take("cluster").empty();
  const std::string name = take("scenario");
  request.scenario = FindScenario(name);
  if (request.scenario == nullptr && !request.cluster)
    return absl::InvalidArgumentError(absl::StrCat("no scenario \"", name, "\""));
  if (request.scenario != nullptr) request.job = request.scenario->job;
  request.command_line = {"gpuprobe", "simulate"};
  if (request.cluster) {
    request.command_line.emplace_back("--cluster");
  } else {
    request.command_line.insert(request.command_line.end(), {"--scenario", name});
  }
  for (const JobOption& option : kJobOptions) {
    const std::string text = take(option.name);
    if (text.empty()) continue;
    if (request.cluster)
      return absl::InvalidArgumentError(absl::StrCat("--cluster draws its jobs from --seed; --",
                                                     std::string(option.name), " changes none"));
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || value < option.least || value > option.most)
      return absl::InvalidArgumentError(absl::StrCat("--", std::string(option.name), "=", text));
    option.apply(request.job, value);
    request.command_line.push_back(absl::StrCat("--", std::string(option.name)));
    if (option.kind != Kind::kFlag) request.command_line.push_back(absl::StrFormat("%.10g", value));
  }
  const std::string seed = take("seed");
  if (!seed.empty() && !absl::SimpleAtoi(seed, &request.seed))
    return absl::InvalidArgumentError(absl::StrCat("--seed=", seed));
  if (request.seed != Request{}.seed) {
    request.command_line.emplace_back("--seed");
    request.command_line.push_back(seed);
  }
  const std::string hosts = take("hosts");
  if (!hosts.empty() && !absl::SimpleAtoi(hosts, &request.hosts))
    return absl::InvalidArgumentError(absl::StrCat("--hosts=", hosts));
  if (request.hosts > 0) {
    request.command_line.emplace_back("--hosts");
    request.command_line.push_back(hosts);
  }
  const std::string jobs = take("jobs");
  if (!jobs.empty() && !absl::SimpleAtoi(jobs, &request.jobs))
    return absl::InvalidArgumentError(absl::StrCat("--jobs=", jobs));
  const std::string hours = take("hours");
  if (!hours.empty() && !absl::SimpleAtod(hours, &request.hours))
    return absl::InvalidArgumentError(absl::StrCat("--hours=", hours));
  request.real_time = !take("real-time").empty();
  request.socket = take("socket");
  request.collector = take("collector");
  request.directory = take("out");
  if (!request.directory.empty()) request.collect.push_back(absl::StrCat("--out=", request.directory));
  if (const std::string keep = take("keep"); !keep.empty())
    request.collect.push_back(absl::StrCat("--keep=", keep));
  if (!given.empty())
    return absl::InvalidArgumentError(absl::StrCat("unknown option --", given.begin()->first));
  if (absl::Status s = CheckJob(request.job); !s.ok()) return s;
  return request;
}

}  // namespace gpuprobe::simulate
