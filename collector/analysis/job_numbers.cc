#include "collector/analysis/job_numbers.h"

#include <algorithm>
#include <climits>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/hangs/bystander.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/members.h"
#include "collector/analysis/names.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/report/gpu_health.h"
#include "collector/report/words.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

constexpr char kSeveral[] = "several";

// What a client calls an operation may be anything: only NCCL's names become labels.
std::string OperationLabel(const model::ProcessModel& process, const model::CollectiveSeries& series) {
  if (series.parts.size() != 1) return kSeveral;
  const std::string& name = process.String(series.parts.front().op);
  const bool known = std::any_of(std::begin(nccl::kOperations), std::end(nccl::kOperations),
                                 [&](const nccl::OperationFacts& facts) { return facts.name == name; });
  return known ? name : kSeveral;
}

void AddSteps(const model::Member& member, RankNumbers& rank, JobNumbers& job) {
  const model::StepStatistics& s = member.steps().statistics();
  rank.steps = member.steps().count();
  rank.measured_steps = s.total_ns.count();
  rank.step_ns = s.total_ns.total();
  rank.compute_ns = s.compute_ns.total();
  rank.exposed_comm_ns = s.exposed_comm_ns.total();
  rank.copy_ns = s.copy_ns.total();
  rank.idle_ns = s.idle_ns.total();
  s.total_ns.AddCumulative(kStepBoundsNs, job.step_counts);
  job.step_count += s.total_ns.count();
  job.step_ns += s.total_ns.total();
}

void AddDevices(const model::Member& member, RankNumbers& rank) {
  const model::ProcessModel& process = *member.process;
  const model::DeviceSteps& steps = process.device_steps();
  for (size_t place = 0; place < steps.size(); ++place) {
    if (!steps.IsDriven(place)) continue;
    const uint32_t ordinal = *steps.At(place).ordinal;
    if (member.IsDevice() && steps.ReportedPlaceOf(ordinal) != member.place) continue;
    const auto described = process.devices().find(ordinal);
    if (described == process.devices().end() || described->second.info.uuid().empty()) continue;
    rank.devices.push_back({.device = ordinal, .uuid = described->second.info.uuid()});
  }
}

void AddMemory(const model::Member& member, RankNumbers& rank) {
  const model::ProcessModel& process = *member.process;
  for (const auto& [ordinal, device] : process.ledger().devices()) {
    if (member.IsDevice() && process.device_steps().ReportedPlaceOf(ordinal) != member.place) continue;
    DeviceMemoryNumbers& memory = rank.memory.emplace_back();
    memory.device = ordinal;
    memory.live_bytes = device.live_bytes;
    memory.high_water_bytes = device.high_water_bytes;
    const auto described = process.devices().find(ordinal);
    if (described != process.devices().end()) memory.capacity_bytes = described->second.info.memory_bytes();
  }
  if (member.place == 0) rank.pinned_bytes = process.ledger().kinds()[v1::MEMORY_KIND_PINNED].live_bytes;
}

void AddHealth(const model::Member& member, RankNumbers& rank) {
  const model::ProcessModel& process = *member.process;
  for (const auto& [ordinal, health] : process.health()) {
    if (member.IsDevice() && process.device_steps().ReportedPlaceOf(ordinal) != member.place) continue;
    GpuHealthNumbers& gpu = rank.gpus.emplace_back();
    gpu.device = ordinal;
    gpu.clock_mhz = health.clock_mhz();
    gpu.power_w = health.power_milliwatts() / 1000.0;
    gpu.temperature_c = health.temperature_celsius();
    gpu.errors = health.xid_count();
    for (int i = 0; i < v1::ClockLimit_ARRAYSIZE; ++i) {
      if (const uint64_t ns = health.LimitedNs(static_cast<v1::ClockLimit>(i)); ns > 0)
        gpu.limited_ns[report::Word(static_cast<ClockLimit>(i))] = ns;
    }
  }
}

void AddCopies(const model::ProcessTotals& totals, RankNumbers& rank) {
  for (size_t i = 0; i < totals.copies.size(); ++i) {
    CopyNumbers copies{.direction = std::string(DirectionName(static_cast<v1::CopyDirection>(i))),
                       .copies = totals.copies[i].count,
                       .bytes = totals.copies[i].bytes};
    for (const v1::SmallCopies& small : totals.self.small_copies()) {
      if (static_cast<size_t>(small.direction()) != i) continue;
      copies.copies += small.copies();
      copies.bytes += small.bytes();
    }
    if (copies.copies > 0) rank.copies.push_back(std::move(copies));
  }
}

// Device work of one of several GPUs of a process.
void AddDeviceWork(const model::Member& member, RankNumbers& rank) {
  const auto found = member.process->devices().find(*member.device());
  if (found == member.process->devices().end()) return;
  rank.kernels = found->second.kernels;
  for (const auto& [direction, copies] : found->second.copies) {
    rank.copies.push_back({.direction = std::string(DirectionName(static_cast<v1::CopyDirection>(direction))),
                           .copies = copies.count,
                           .bytes = copies.bytes});
  }
}

RankNumbers RankOf(const model::JobModel& job, const model::Member& member, const ProcessLabels& labels,
                   uint64_t now_ns, JobNumbers& numbers) {
  const model::ProcessModel& process = *member.process;
  const model::ProcessTotals& totals = process.totals();
  const v1::Identity& id = process.identity();
  RankNumbers rank;
  rank.rank = LabelOf(job, labels, member);
  rank.host = id.host();
  rank.connected = process.end_state() == model::EndState::kConnected;
  const std::optional<Halt> halt = HaltOf(process, now_ns);
  rank.halted = halt.has_value() && halt->kind != Halt::Kind::kEnded;
  member.ForEachKernel([&](const model::KernelTotals& kernel) { rank.kernel_ns += kernel.time_ns.total(); });
  if (member.IsDevice()) {
    AddDeviceWork(member, rank);
  } else {
    rank.kernels = totals.kernels;
    AddCopies(totals, rank);
  }
  AddSteps(member, rank, numbers);
  AddDevices(member, rank);
  AddMemory(member, rank);
  AddHealth(member, rank);
  const auto& blame = job.comparison().blame();
  if (member.number < blame.size()) {
    rank.caused_wait_ns = blame[member.number].caused_mean_ns;
    rank.waited_ns = blame[member.number].waited_ns;
  }
  if (member.place != 0) return rank;
  rank.records = totals.records;
  rank.probe_host_ns = totals.self.host_ns();
  rank.probe_cpu_ns = totals.self.background_cpu_ns();
  return rank;
}

void AddSums(const model::ProcessModel& process, JobNumbers& numbers) {
  numbers.records += process.totals().records;
  numbers.wire_bytes += process.totals().wire_bytes;
  numbers.world_size = std::max(numbers.world_size, process.identity().world_size());
  for (const auto& [reason, records] : process.totals().losses) {
    if (records > 0) numbers.lost[LossName(reason)] += records;
  }
  for (const auto& series : process.collectives().series()) {
    CollectiveNumbers& sums = numbers.collectives[OperationLabel(process, *series)];
    sums.calls += series->calls;
    sums.bytes += series->bytes;
    sums.time_ns += series->time_ns.total();
  }
}

}  // namespace

JobNumbers NumbersOf(const model::JobModel& job, uint64_t now_ns, size_t most_ranks) {
  JobNumbers numbers;
  const ProcessLabels labels(job);
  // A rank that was started again is the newer process: its sums start anew, as a scraper expects. Two
  // processes that are the same rank at the same time are two.
  std::map<std::tuple<int, std::string, int>, std::vector<model::Member>> order;
  for (const auto& process : job.processes()) AddSums(*process, numbers);
  const Bystanders bystanders(job);
  for (const model::Member& member : job.ReportedMembers()) {
    if (bystanders.Has(*member.process)) continue;
    const v1::Identity& id = member.process->identity();
    const bool by_rank = HasRank(id) && !labels.IsDuplicate(*member.process);
    auto& members = order[{HasRank(id) ? id.rank() : INT_MAX, id.host(), by_rank ? 0 : id.pid()}];
    if (member.place == 0) members.clear();
    members.push_back(member);
  }
  std::optional<uint64_t> steps;
  for (const auto& [key, members] : order) {
    for (const model::Member& member : members) {
      RankNumbers each = RankOf(job, member, labels, now_ns, numbers);
      if (each.steps > 0) steps = std::min(steps.value_or(UINT64_MAX), each.steps);
      if (numbers.ranks.size() < most_ranks) numbers.ranks.push_back(std::move(each));
    }
  }
  numbers.heard = order.size();
  numbers.steps = steps.value_or(0);
  return numbers;
}

}  // namespace gpuprobe::analysis
