#include "collector/simulate/simulation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/simulate/step_programs.h"

namespace gpuprobe::simulate {
namespace {

constexpr uint32_t kNcclVersion = 22809;
constexpr std::string_view kDeviceName = "NVIDIA H100 80GB HBM3";
// Offset and drift of the hosts' clocks, as with NTP.
constexpr int64_t kClockSpreadNs = 3'000'000;
constexpr double kClockDrift = 2e-6;

RankClock ClockOf(const TrainingJob& job, const SimulationOptions& options, int rank) {
  RankClock clock{.epoch_ns = options.epoch_ns};
  const int host = rank / job.ranks_per_host;
  if (host == 0) return clock;
  Random random(options.seed * 7'919 + static_cast<uint64_t>(host));
  clock.offset_ns = static_cast<int64_t>((random.Uniform() * 2 - 1) * kClockSpreadNs);
  clock.drift = (random.Uniform() * 2 - 1) * kClockDrift;
  return clock;
}

std::string HostOf(const SimulationOptions& options, int host) {
  const std::vector<std::string>& hosts = options.placement.hosts;
  return hosts.empty() ? absl::StrCat("simulated-", host) : hosts[static_cast<size_t>(host)];
}

std::string UuidOf(const TrainingJob& job, const SimulationOptions& options, int rank) {
  if (options.placement.hosts.empty()) return absl::StrFormat("GPU-%08x-0000-0000-0000-000000000000", rank);
  return GpuUuid(HostOf(options, rank / job.ranks_per_host),
                 options.placement.first_gpu + rank % job.ranks_per_host);
}

std::vector<RankStream> Streams(const TrainingJob& job, const SimulationOptions& options,
                                const std::vector<NodeCommunicator>& communicators) {
  std::vector<RankStream> streams;
  streams.reserve(static_cast<size_t>(job.ranks));
  std::vector<std::vector<CommunicatorMember>> members(static_cast<size_t>(job.ranks));
  for (const NodeCommunicator& communicator : communicators) {
    for (size_t i = 0; i < communicator.members.size(); ++i) {
      members[static_cast<size_t>(communicator.members[i])].push_back(
          {.hash = communicator.hash,
           .rank = static_cast<int32_t>(i),
           .ranks = static_cast<int32_t>(communicator.members.size())});
    }
  }
  for (int rank = 0; rank < job.ranks; ++rank) {
    streams.emplace_back(RankDescription{
        .rank = rank,
        .local_rank = rank % job.ranks_per_host,
        .world_size = job.ranks,
        .uid = options.uid,
        .job = absl::StrCat("simulate-", options.name),
        .host = HostOf(options, rank / job.ranks_per_host),
        .device_uuid = UuidOf(job, options, rank),
        .device_name =
            std::string(IsOther(job, rank) && !job.other.device.empty() ? job.other.device : kDeviceName),
        .device_bytes = job.memory.device_bytes,
        .command_line = options.command_line,
        .clock = ClockOf(job, options, rank),
        .communicators = members[static_cast<size_t>(rank)],
        .range_names = RangeNames(),
        .nccl_version = IsOther(job, rank) && job.other.nccl != 0 ? job.other.nccl : kNcclVersion,
        .lost_share = job.lost_share,
        .seed = options.seed * 104'729 + static_cast<uint64_t>(rank)});
  }
  return streams;
}

std::vector<RankSettings> Settings(const TrainingJob& job,
                                   const std::vector<NodeCommunicator>& communicators) {
  std::vector<RankSettings> settings(static_cast<size_t>(job.ranks), SettingsOf(job));
  for (size_t number = 0; number < communicators.size(); ++number) {
    const std::vector<int>& members = communicators[number].members;
    for (size_t i = 0; i < members.size(); ++i)
      settings[static_cast<size_t>(members[i])].communicators.emplace_back(static_cast<int>(number),
                                                                           static_cast<int>(i));
  }
  return settings;
}

}  // namespace

std::string GpuUuid(std::string_view host, int gpu) {
  uint64_t hash = 0xcbf2'9ce4'8422'2325u;  // FNV-1a: the same in every run
  for (const char c : host) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3u;
  return absl::StrFormat("GPU-%08x-%04x-4000-8000-%012x", hash >> 32, (hash >> 16) & 0xffff, gpu);
}

Simulation::Simulation(const TrainingJob& job, const SimulationOptions& options, NodeObserver* observer)
    : job_(job),
      options_(options),
      communicators_(Communicators(job)),
      streams_(Streams(job, options, communicators_)),
      programs_(static_cast<size_t>(job.ranks)),
      sealed_ns_(static_cast<size_t>(job.ranks)),
      ended_(static_cast<size_t>(job.ranks)),
      node_(communicators_, Settings(job, communicators_), streams_, options.seed, job.noise.calls,
            observer) {}

uint64_t Simulation::records() const {
  uint64_t records = 0;
  for (const RankStream& stream : streams_) records += stream.sent();
  return records;
}

// Events that happen to a rank without being in its program.
void Simulation::Adjust(int step) {
  if (job_.clock_step.ns != 0 && step == job_.clock_step.step) {
    for (int rank = job_.ranks_per_host; rank < std::min(job_.ranks, 2 * job_.ranks_per_host); ++rank)
      streams_[static_cast<size_t>(rank)].StepClock(node_.latest_ns() + 1, job_.clock_step.ns);
  }
  for (size_t i = 0; i < communicators_.size(); ++i)
    node_.SetLink(i, LinkOf(job_, communicators_[i].members, step));
  const RankSettings usual = SettingsOf(job_);
  for (int rank = job_.slow.rank; rank < job_.slow.rank + job_.slow.ranks; ++rank) {
    RankSettings& settings = node_.settings(rank);
    const double factor = IsSlow(job_, rank, step) ? job_.slow.factor : 1;
    switch (job_.slow.by) {
      case SlowBy::kKernels:
        settings.kernel_factor = factor;
        break;
      case SlowBy::kLaunches:
        settings.launch_cost_ns = static_cast<int64_t>(static_cast<double>(usual.launch_cost_ns) * factor);
        break;
      case SlowBy::kCopies:
        settings.pcie_bytes_per_ns = usual.pcie_bytes_per_ns / factor;
        break;
      default:
        break;
    }
  }
}

bool Simulation::RunPrograms(int step) {
  std::vector<const Program*> programs;
  programs.reserve(programs_.size());
  for (const Program& program : programs_) programs.push_back(&program);
  return node_.Run(programs, step);
}

absl::Status Simulation::SendBatch(const Sink& sink, size_t rank, int64_t now_ns, bool all, bool bye,
                                   bool last) {
  streams_[rank].Batch(now_ns, all, scratch_, bytes_);
  if (bye) streams_[rank].Bye(now_ns, bytes_);
  sealed_ns_[rank] = now_ns;
  ended_ns_ = std::max(ended_ns_, now_ns);
  if (last) ended_[rank] = true;
  absl::Status status = sink(static_cast<int>(rank), now_ns, bytes_, last);
  bytes_.clear();
  return status;
}

absl::Status Simulation::SendDue(const Sink& sink) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (ended_[i]) continue;
    const int64_t now = node_.host_ns(static_cast<int>(i));
    if (static_cast<int>(i) == job_.death.rank && node_.exited(job_.death.rank)) {
      ended_[i] = true;
      if (absl::Status s = sink(job_.death.rank, now, "", true); !s.ok()) return s;
      continue;
    }
    if (node_.exited(static_cast<int>(i))) {
      const int64_t end = std::max(now, node_.device_ns(static_cast<int>(i))) + 1'000'000;
      if (absl::Status s = SendBatch(sink, i, end, true, true, true); !s.ok()) return s;
      continue;
    }
    if (now - sealed_ns_[i] < kFlushNs && streams_[i].waiting() < kFullBatch) continue;
    if (absl::Status s = SendBatch(sink, i, now, false, false, false); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status Simulation::Run(const Sink& sink) {
  for (size_t i = 0; i < streams_.size(); ++i) {
    streams_[i].Hello(bytes_);
    absl::Status status = sink(static_cast<int>(i), 0, bytes_, false);
    bytes_.clear();
    if (!status.ok()) return status;
    BuildSetup(job_, programs_[i]);
  }
  bool alive = RunPrograms(kSetup);
  for (int step = 0; step < job_.steps && alive; ++step) {
    Adjust(step);
    for (size_t i = 0; i < programs_.size(); ++i) BuildStep(job_, static_cast<int>(i), step, programs_[i]);
    alive = RunPrograms(step);
    if (alive && job_.evaluation.every > 0 && (step + 1) % job_.evaluation.every == 0) {
      for (size_t i = 0; i < programs_.size(); ++i)
        BuildEvaluation(job_, static_cast<int>(i), step, programs_[i]);
      alive = RunPrograms(kEvaluation);
    }
    if (absl::Status s = SendDue(sink); !s.ok()) return s;
  }
  hung_ = !alive;
  return alive ? Finish(sink) : FinishHung(sink);
}

absl::Status Simulation::Finish(const Sink& sink) {
  const int64_t end = node_.latest_ns() + 1'000'000;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (ended_[i]) continue;
    if (absl::Status s = SendBatch(sink, i, std::max(end, sealed_ns_[i]), true, true, true); !s.ok())
      return s;
  }
  return absl::OkStatus();
}

// No rank exits cleanly: a job that hangs is killed in the end, and one that lost a rank is killed at once by
// its launcher.
absl::Status Simulation::FinishHung(const Sink& sink) {
  const bool lost_rank = std::find(ended_.begin(), ended_.end(), true) != ended_.end();
  int64_t now = node_.latest_ns();
  for (size_t i = 0; i < streams_.size(); ++i)
    now = std::max({now, sealed_ns_[i], node_.host_ns(static_cast<int>(i))});
  now += 1'000'000;
  const int64_t end = now + (lost_rank ? 1'000'000'000 : kHungForNs);
  while (true) {
    const bool last = now >= end;
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (ended_[i]) continue;
      if (absl::Status s = SendBatch(sink, i, now, false, false, last); !s.ok()) return s;
    }
    if (last) return absl::OkStatus();
    now = std::min(end, now + kIdleReportNs);
  }
}

}  // namespace gpuprobe::simulate
