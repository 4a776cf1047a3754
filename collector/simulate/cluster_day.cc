#include "collector/simulate/cluster_day.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/simulate/random.h"

namespace gpuprobe::simulate {
namespace {

constexpr int kHosts = 12;
constexpr int kGpusPerHost = 8;
constexpr double kMs = 1e6;

// What one layer computes at `work` 1 (step_programs.cc), and what updates the weights.
constexpr double kForwardNs = 1.26 * kMs;
constexpr double kBackwardNs = 2.515 * kMs;
constexpr double kOptimizerNs = 1.46 * kMs;
constexpr int64_t kHardlyAnyNs = 500;

constexpr double kLengths[][4] = {{1.0, 0.75, 1.25, 0.875}, {1.0, 0.95, 1.1, 1.05}, {0.6, 1.0, 1.3, 0.8}};
constexpr std::string_view kFaultNames[] = {
    "none",          "slow-gpu",        "slow-network",  "slow-input",   "late-input",
    "late-rank",     "more-work",       "garbage",       "tiny-kernels", "hang-missing",
    "hang-mismatch", "hang-all-issued", "out-of-memory", "rank-dies"};
static_assert(std::size(kFaultNames) == static_cast<size_t>(Fault::kCount));
constexpr std::string_view kWords[] = {"pretrain", "finetune", "sft", "vision",
                                       "ablation", "eval",     "tts", "sweep"};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  double Between(double low, double high) { return low + (high - low) * random_.Uniform(); }
  // As many below the geometric mean as above it.
  double Scaled(double low, double high) { return low * std::pow(high / low, random_.Uniform()); }
  int Whole(int low, int high) {
    return low + static_cast<int>(random_.Uniform() * static_cast<double>(high - low + 1));
  }
  bool Chance(double share) { return random_.Uniform() < share; }
  template <typename T>
  const T& OneOf(std::span<const T> all) {
    return all[static_cast<size_t>(Whole(0, static_cast<int>(all.size()) - 1))];
  }
  uint64_t Next() { return random_.Next(); }

 private:
  Random random_;
};

double StepNs(const TrainingJob& job) {
  return job.work * (job.layers * job.microbatches * (kForwardNs + kBackwardNs) + kOptimizerNs);
}

Link LinkWithin(Draw& draw) {
  static constexpr double kGbPerS[] = {350, 350, 280, 160};
  return {.alpha_ns = draw.Whole(1'500, 5'000), .beta_bytes_per_ns = draw.OneOf<double>(kGbPerS)};
}

void DrawModel(Draw& draw, TrainingJob& job) {
  job.sharded = job.ranks > 2 && draw.Chance(0.2);
  job.layers = job.sharded ? draw.Whole(8, 16) : draw.Whole(3, 12);
  job.microbatches = !job.sharded && draw.Chance(0.2) ? draw.Whole(2, 4) : 1;
  job.work = draw.Scaled(0.5, 4);
  job.graph = !job.sharded && draw.Chance(0.1);
  job.nvtx = draw.Chance(0.3);
  job.steps = draw.Whole(50, 140);
  job.warmup = {.steps = draw.Whole(1, 6),
                .factor = draw.Between(1.5, 4),
                .compile_ns = draw.Whole(100, 900) * int64_t{1'000'000}};
  // A graph has one length.
  if (draw.Chance(0.15) && !job.graph) job.input.lengths = kLengths[draw.Whole(0, 2)];
  if (draw.Chance(0.3) && !job.graph) job.input.spread = draw.Between(0, 0.03);
  if (draw.Chance(0.1)) job.evaluation = {.every = draw.Whole(15, 30), .batches = draw.Whole(2, 6)};
}

// Of a size that a well-configured job hides behind its backward pass.
void DrawCommunication(Draw& draw, TrainingJob& job) {
  job.link = LinkWithin(draw);
  const bool spans = job.ranks > job.ranks_per_host;
  if (spans)
    job.network.link = {.alpha_ns = draw.Whole(2'700, 8'000), .beta_bytes_per_ns = draw.Between(25, 100)};
  const Link link = spans ? *job.network.link : job.link;
  const double hidden = job.sharded ? draw.Between(0.05, 0.25) : draw.Between(0.05, 0.5);
  const double layer_ns = hidden * job.work * (job.sharded ? kForwardNs : kBackwardNs);
  const double bytes = layer_ns * link.beta_bytes_per_ns / (job.sharded ? 1 : 2);
  job.gradients.layer_bytes =
      std::clamp(static_cast<uint64_t>(bytes), uint64_t{1} << 20, uint64_t{400} << 20);
  job.gradients.bucket_bytes = draw.Whole(10, 50) * kMiB;
}

void DrawHost(Draw& draw, TrainingJob& job) {
  job.host.launch_cost_ns = draw.Whole(2'500, 6'500);
  job.host.read_loss_every = draw.Whole(5, 50);
  job.input.wait_ns = draw.Whole(20'000, 800'000);
  job.input.batch_bytes = draw.Whole(1, 12) * kMiB;
  job.noise = {.kernels = draw.Scaled(0.004, 0.03),
               .host = draw.Between(0.03, 0.25),
               .calls = draw.Scaled(0.003, 0.03)};
  job.memory.tensors = draw.Chance(0.3);
  job.memory.activation_bytes = draw.Whole(8, 36) * (uint64_t{1} << 30);
}

TrainingJob DrawJob(Draw& draw, int ranks, int ranks_per_host) {
  TrainingJob job;
  job.ranks = ranks;
  job.ranks_per_host = ranks_per_host;
  DrawModel(draw, job);
  DrawCommunication(draw, job);
  DrawHost(draw, job);
  return job;
}

// Plans one job after another; of each, where it runs.
class Planner {
 public:
  Planner(uint64_t seed, double hours) : draw_(seed * 0x9e37'79b9u + 17), hours_(hours) {
    offender_ = draw_.Whole(0, kHosts - 1);
    day_.offender_host = HostName(offender_);
    day_.offender_gpu = draw_.Whole(0, kGpusPerHost - 1);
  }

  ClusterDay Plan(int jobs);

 private:
  static std::string HostName(int host) { return absl::StrFormat("node-%02d", host); }
  PlannedJob Begin(int ranks, int ranks_per_host);
  void Place(PlannedJob& planned, bool on_offender);
  int SomeRanks();
  void AddFaulty(Fault fault);
  void AddOffended();
  void AddLarge(bool faulty);
  void AddAttempts(bool slower);
  bool HasRoom(int more) const { return static_cast<int>(day_.jobs.size()) + more <= most_; }

  Draw draw_;
  double hours_;
  int most_ = 0;
  int named_ = 0;
  int offender_ = 0;  // its host
  ClusterDay day_;
};

int Planner::SomeRanks() {
  static constexpr int kRanks[] = {2, 4, 4, 8, 8, 8, 16};
  return draw_.OneOf<int>(kRanks);
}

PlannedJob Planner::Begin(int ranks, int ranks_per_host) {
  PlannedJob planned;
  planned.seed = draw_.Next() >> 1;
  planned.job = DrawJob(draw_, ranks, ranks_per_host);
  planned.severity = draw_.Between(0, 1);
  planned.from = draw_.Chance(0.5) ? 0 : draw_.Between(0.2, 0.6);
  planned.faulty_rank = draw_.Whole(0, ranks - 1);
  planned.begins_h = draw_.Between(0, hours_ * 0.8);
  return planned;
}

// Only jobs that are meant to have it run on the GPU that is slow all day.
void Planner::Place(PlannedJob& planned, bool on_offender) {
  const int per_host = planned.job.ranks_per_host;
  const int hosts = (planned.job.ranks + per_host - 1) / per_host;
  // Hosts in a row, the offender's first or not among them.
  const int first = on_offender ? offender_ : (offender_ + draw_.Whole(1, kHosts - hosts)) % kHosts;
  planned.placement.hosts.clear();
  for (int i = 0; i < hosts; ++i) planned.placement.hosts.push_back(HostName((first + i) % kHosts));
  const int slots = kGpusPerHost / per_host;
  planned.placement.first_gpu =
      per_host * (on_offender ? day_.offender_gpu / per_host : draw_.Whole(0, slots - 1));
  if (on_offender) planned.faulty_rank = day_.offender_gpu % per_host;
  planned.name = absl::StrCat(planned.placement.hosts.front(), ":29500 ",
                              std::string(kWords[draw_.Whole(0, std::size(kWords) - 1)]), "-", ++named_);
}

void Planner::AddOffended() {
  const int ranks = SomeRanks();
  PlannedJob planned = Begin(ranks, std::min(ranks, kGpusPerHost));
  Place(planned, /*on_offender=*/true);
  planned.fault = Fault::kSlowGpu;
  planned.from = 0;
  planned.has_repeat_offender = true;
  day_.jobs.push_back(std::move(planned));
}

void Planner::AddFaulty(Fault fault) {
  const bool spans = fault == Fault::kSlowNetwork;
  const int ranks = spans ? 8 * draw_.Whole(1, 2) : SomeRanks();
  PlannedJob planned = Begin(ranks, spans ? ranks / 2 : std::min(ranks, kGpusPerHost));
  Place(planned, /*on_offender=*/false);
  planned.fault = fault;
  // These need launches and reductions of their own.
  if (EndsTheJob(fault) || fault == Fault::kTinyKernels || fault == Fault::kLateRank)
    planned.job.graph = planned.job.sharded = false;
  const bool again = EndsTheJob(fault) && HasRoom(2);
  day_.jobs.push_back(planned);
  if (!again) return;
  planned.attempt = 2;
  planned.fault = Fault::kNone;
  planned.seed = draw_.Next() >> 1;
  planned.begins_h += draw_.Between(0.01, 0.15) * hours_;
  day_.jobs.push_back(std::move(planned));
}

// The same job twice: as it was, or a few percent slower on every GPU.
void Planner::AddAttempts(bool slower) {
  const int ranks = SomeRanks();
  PlannedJob planned = Begin(ranks, std::min(ranks, kGpusPerHost));
  Place(planned, /*on_offender=*/false);
  day_.jobs.push_back(planned);
  planned.attempt = 2;
  planned.seed = draw_.Next() >> 1;
  planned.begins_h += draw_.Between(0.01, 0.15) * hours_;
  if (slower) planned.job.work *= 1 + draw_.Between(0.02, 0.06);
  day_.jobs.push_back(std::move(planned));
}

void Planner::AddLarge(bool faulty) {
  PlannedJob planned = Begin(2 * kGpusPerHost, kGpusPerHost);
  planned.job.layers = std::min(planned.job.layers, 6);
  planned.job.steps = draw_.Whole(40, 60);
  planned.many_hosts = draw_.Whole(4, 24);
  // Its second host stands in the middle of the others.
  planned.faulty_rank = kGpusPerHost + draw_.Whole(0, kGpusPerHost - 1);
  if (faulty) planned.fault = Fault::kSlowGpu;
  planned.name = absl::StrCat("host-00000:29500 large-", ++named_);
  day_.jobs.push_back(std::move(planned));
}

ClusterDay Planner::Plan(int jobs) {
  most_ = jobs;
  for (int i = 0; i < std::max(3, jobs / 12); ++i) AddOffended();
  AddLarge(/*faulty=*/false);
  if (jobs >= 24) AddLarge(/*faulty=*/true);
  for (int i = 0; i < std::max(1, jobs / 20) && HasRoom(4); ++i) {
    AddAttempts(/*slower=*/true);
    if (HasRoom(2)) AddAttempts(/*slower=*/false);
  }
  constexpr int kFaults = static_cast<int>(Fault::kCount) - 1;
  const int first = draw_.Whole(0, kFaults - 1);
  // 5 shares no factor with 13: every fault comes once before any comes again.
  static_assert(kFaults % 5 != 0);
  for (int i = 0; i < (jobs + 2) / 3 && HasRoom(1); ++i)
    AddFaulty(static_cast<Fault>(1 + (first + 5 * i) % kFaults));
  while (HasRoom(1)) {
    const int ranks = SomeRanks();
    const bool spans = ranks == 8 && draw_.Chance(0.3);
    PlannedJob planned = Begin(ranks, spans ? 4 : std::min(ranks, kGpusPerHost));
    Place(planned, /*on_offender=*/false);
    day_.jobs.push_back(std::move(planned));
  }
  std::stable_sort(day_.jobs.begin(), day_.jobs.end(),
                   [](const PlannedJob& a, const PlannedJob& b) { return a.begins_h < b.begins_h; });
  return std::move(day_);
}

double Severity(const PlannedJob& planned, double least, double most, double strength) {
  return least * std::pow(most / least, planned.severity) * strength;
}

void SlowDown(const PlannedJob& planned, SlowBy by, double factor, TrainingJob& job) {
  job.slow = {.by = by, .rank = planned.faulty_rank, .factor = factor, .from = planned.from};
}

void HangAt(const PlannedJob& planned, HangBy by, TrainingJob& job) {
  const int step = std::clamp(static_cast<int>(planned.severity * job.steps), 8, job.steps - 2);
  job.hang = {.by = by, .rank = planned.faulty_rank, .step = step};
}

}  // namespace

std::string_view NameOf(Fault fault) { return kFaultNames[static_cast<size_t>(fault)]; }

bool EndsTheJob(Fault fault) {
  return fault == Fault::kHangMissing || fault == Fault::kHangMismatch || fault == Fault::kHangAllIssued ||
         fault == Fault::kOutOfMemory || fault == Fault::kRankDies;
}

bool IsOfOneRank(Fault fault) {
  switch (fault) {
    case Fault::kSlowGpu:
    case Fault::kLateInput:
    case Fault::kLateRank:
    case Fault::kMoreWork:
    case Fault::kHangMissing:
    case Fault::kHangMismatch:
    case Fault::kOutOfMemory:
    case Fault::kRankDies:
      return true;
    default:
      return false;
  }
}

TrainingJob WithoutFault(const PlannedJob& planned, double strength) {
  if (planned.fault != Fault::kTinyKernels) return planned.job;
  TrainingJob job = WithFault(planned, strength);
  job.host.launch_cost_ns = kHardlyAnyNs;
  return job;
}

ClusterDay PlanDay(uint64_t seed, int jobs, double hours) { return Planner(seed, hours).Plan(jobs); }

TrainingJob WithFault(const PlannedJob& planned, double strength) {
  TrainingJob job = planned.job;
  const auto severity = [&](double least, double most) { return Severity(planned, least, most, strength); };
  const int step = std::clamp(static_cast<int>(planned.severity * job.steps), 8, job.steps - 2);
  switch (planned.fault) {
    case Fault::kNone:
    case Fault::kCount:
      break;
    case Fault::kSlowGpu:
      SlowDown(planned, SlowBy::kKernels, 1 + severity(0.06, 0.6), job);
      break;
    case Fault::kSlowNetwork:
      job.network.slowdown = 1 + severity(2, 12);
      job.network.from = planned.from;
      break;
    case Fault::kSlowInput:
      job.input.wait_ns = static_cast<int64_t>(StepNs(job) * (1 + severity(0.1, 1)));
      break;
    case Fault::kLateInput:
      SlowDown(planned, SlowBy::kInput,
               StepNs(job) * (1 + severity(0.1, 1)) / static_cast<double>(job.input.wait_ns), job);
      break;
    case Fault::kLateRank:
      SlowDown(planned, SlowBy::kLaunches, 1 + severity(20, 80), job);
      break;
    case Fault::kMoreWork:
      SlowDown(planned, SlowBy::kMoreWork, 1 + severity(0.1, 0.5), job);
      break;
    case Fault::kGarbage:
      job.host.pause = {.ns = static_cast<int64_t>(severity(40 * kMs, 250 * kMs)),
                        .code = HostCode::kCollectsGarbage,
                        .every = 5 + static_cast<int>(20 * planned.from),
                        .staggered = true};
      break;
    case Fault::kTinyKernels:
      job.tiny_kernels = static_cast<int>(Severity(planned, 500, 2'000, 1));
      job.work = std::min(job.work, 1.0);
      job.host.launch_cost_ns = static_cast<int64_t>(severity(6'000, 14'000));
      job.gradients.layer_bytes = std::min<uint64_t>(job.gradients.layer_bytes, 4 * kMiB);
      break;
    case Fault::kHangMissing:
      HangAt(planned, HangBy::kMissingRank, job);
      break;
    case Fault::kHangMismatch:
      HangAt(planned, HangBy::kMismatch, job);
      break;
    case Fault::kHangAllIssued:
      HangAt(planned, HangBy::kAllIssued, job);
      break;
    case Fault::kOutOfMemory:
      job.slow.rank = planned.faulty_rank;
      job.memory.refuses_in_step = step;
      job.memory.activation_bytes = job.memory.device_bytes - job.held_bytes() - (uint64_t{4} << 30);
      break;
    case Fault::kRankDies:
      job.death = {.rank = planned.faulty_rank, .step = step};
      break;
  }
  return job;
}

}  // namespace gpuprobe::simulate
