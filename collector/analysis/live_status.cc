#include "collector/analysis/live_status.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/bystander.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/members.h"
#include "collector/analysis/names.h"
#include "collector/analysis/trust/duplicate_ranks.h"

namespace gpuprobe::analysis {
namespace {

void AddTo(LiveStep& sum, const LiveStep& each, double factor) {
  sum.total_ns += each.total_ns * factor;
  sum.compute_ns += each.compute_ns * factor;
  sum.exposed_comm_ns += each.exposed_comm_ns * factor;
  sum.copy_ns += each.copy_ns * factor;
  sum.idle_ns += each.idle_ns * factor;
}

LiveStep StepOf(const model::StepRecord& r) {
  return {.total_ns = static_cast<double>(r.total_ns()),
          .compute_ns = static_cast<double>(r.compute_ns),
          .exposed_comm_ns = static_cast<double>(r.exposed_comm_ns),
          .copy_ns = static_cast<double>(r.copy_ns),
          .idle_ns = static_cast<double>(r.idle_ns)};
}

uint64_t MemoryOf(const model::Member& member) {
  const model::DeviceSteps& devices = member.process->device_steps();
  uint64_t bytes = 0;
  for (const auto& [ordinal, device] : member.process->ledger().devices()) {
    if (!member.IsDevice() || devices.ReportedPlaceOf(ordinal) == member.place) bytes += device.live_bytes;
  }
  return bytes;
}

void Describe(const model::ProcessModel& process, LiveStatus& status, std::set<std::string>& hosts,
              std::set<std::pair<std::string, std::string>>& devices) {
  const v1::Identity& id = process.identity();
  const v1::Versions& v = process.versions();
  hosts.insert(id.host());
  status.world_size = std::max(status.world_size, id.world_size());
  if (status.cuda.empty()) status.cuda = CudaVersionName(v.cuda_driver());
  if (status.nccl.empty()) status.nccl = NcclVersionName(v.nccl());
  for (const auto& [ordinal, device] : process.devices()) {
    // Every rank describes all devices that it sees.
    const bool fresh = devices.insert(DeviceKey(id.host(), ordinal, device.info.uuid())).second;
    if (fresh && !device.info.name().empty()) status.devices.push_back(device.info.name());
  }
  status.records += process.totals().records;
  for (const auto& [reason, records] : process.totals().losses) status.lost += records;
}

uint64_t Since(uint64_t now_ns, uint64_t then_ns) { return now_ns - std::min(now_ns, then_ns); }

// What is known of the process is of then.
uint64_t HeardNs(const model::ProcessModel& process) {
  return std::max(process.totals().last_clock_ns, process.totals().last_ns);
}

// What its host does: where its main thread is, and how far its collectives are.
void DescribeHost(const model::ProcessModel& process, uint64_t now_ns, LiveRank& r) {
  const model::HostProgress& p = process.progress();
  r.python = PythonPlace(PythonFrames(process.condition().python()));
  if (p.blocked_in != 0) {
    r.blocked_in = process.String(p.blocked_in);
    r.blocked_ns = Since(HeardNs(process), p.blocked_since_ns);
  }
  r.range = absl::StrJoin(p.open_ranges, "/", [&](std::string* out, uint32_t name) {
    absl::StrAppend(out, process.String(name));
  });
  if (p.last_call.issue_ns == 0) return;
  r.last_call = absl::StrCat(process.String(p.last_call.op), " seq ", p.last_call.seq);
  r.last_call_ago_ns = Since(now_ns, p.last_call.issue_ns);
}

// What its host is in, unless it has launched since it was seen.
void DescribeGap(const model::Member& member, uint64_t now_ns, LiveRank& r) {
  const model::ProcessModel& process = *member.process;
  const model::HostSample& seen = process.device_steps().At(member.place).newest;
  const model::HostProgress& progress = process.progress();
  const uint64_t launched_ns = std::max(progress.last_launch_ns, progress.last_left_out_ns);
  if (!seen.in_gap || seen.time_ns <= launched_ns || progress.last_launch_ns == 0) return;
  r.host_in = HostPlaceText(HostPlaceOf(process, seen.place));
  r.host_in_ago_ns = Since(now_ns, seen.time_ns);
  r.silent_ns = Since(std::max(HeardNs(process), seen.time_ns), launched_ns);
}

// What keeps it from running; empty for a process that said goodbye.
std::string TroubleOf(const model::ProcessModel& process, uint64_t now_ns) {
  const std::optional<Halt> halt = HaltOf(process, now_ns);
  if (!halt.has_value() || (halt->kind == Halt::Kind::kEnded && halt->exit_code == 0U)) return "";
  return HaltText(*halt);
}

}  // namespace

LiveRank LiveWatch::LookAt(const model::JobModel& job, const model::Member& member) {
  const model::ProcessModel& process = *member.process;
  const uint32_t index = member.number;
  const v1::Identity& id = process.identity();
  LiveRank r;
  if (HasRank(id)) r.rank = id.rank();
  r.host = id.host();
  r.pid = static_cast<int>(id.pid());
  r.memory_bytes = MemoryOf(member);
  r.steps = member.steps().count();
  const auto& kept = member.steps().steps();
  Before& before = before_[index];
  const uint64_t fresh = r.steps - std::min(before.steps, r.steps);
  // The device's records of the latest steps may not be there yet: CUPTI hands them over by the buffer.
  LiveStep sum;
  size_t used = 0;
  for (auto it = kept.rbegin(); it != kept.rend() && used < std::max<uint64_t>(fresh, kLeastSteps); ++it) {
    if (it->compute_ns + it->comm_ns + it->copy_ns == 0) continue;
    AddTo(sum, StepOf(*it), 1);
    ++used;
  }
  if (used > 0) {
    r.step = LiveStep{};
    AddTo(*r.step, sum, 1 / static_cast<double>(used));
  }
  before.steps = r.steps;
  const auto& blame = job.comparison().blame();
  if (index >= blame.size()) return r;
  const model::RankComparison::Blame& waiting = blame[index];
  if (!waiting.start_is_over) return r;
  if (before.marks.empty()) {
    before.marks.push_back({.compared_ns = waiting.start_compared_ns,
                            .caused_ns = waiting.start_caused_mean_ns,
                            .waited_ns = waiting.start_waited_ns});
  }
  // By time and not by steps: the end of a step is known later than its collectives.
  const auto [late, waited] = WaitingOf({.compared_ns = waiting.compared_ns,
                                         .caused_ns = waiting.caused_mean_ns,
                                         .waited_ns = waiting.waited_ns},
                                        before.marks);
  const double step_ns = r.step.has_value() ? r.step->total_ns : 0;
  r.late_ns = late * step_ns;
  r.waited_ns = waited * step_ns;
  return r;
}

std::pair<double, double> LiveWatch::WaitingOf(const Mark& now, std::deque<Mark>& marks) {
  constexpr uint64_t kApartNs = 250'000'000;  // marks, however often somebody looks
  if (now.compared_ns >= marks.back().compared_ns + kApartNs) marks.push_back(now);
  while (marks.size() > 2 && now.compared_ns >= marks[1].compared_ns + kWindowNs) marks.pop_front();
  const Mark& then = marks.front();
  if (now.compared_ns <= then.compared_ns) return {0, 0};
  const auto time_ns = static_cast<double>(now.compared_ns - then.compared_ns);
  const auto share = [time_ns](uint64_t all_ns, uint64_t before_ns) {
    return std::min(static_cast<double>(all_ns - std::min(before_ns, all_ns)) / time_ns, 1.0);
  };
  return {share(now.caused_ns, then.caused_ns), share(now.waited_ns, then.waited_ns)};
}

LiveStatus LiveWatch::Look(const model::JobModel& job, uint64_t now_ns) {
  LiveStatus status;
  uint64_t last_ns = 0;
  before_.resize(job.members().size());
  const ProcessLabels labels(job);
  std::set<std::string> hosts;
  std::set<std::pair<std::string, std::string>> devices;
  for (const auto& process : job.processes()) Describe(*process, status, hosts, devices);
  const Bystanders bystanders(job);
  for (const model::Member& member : job.ReportedMembers()) {
    const model::ProcessModel& process = *member.process;
    if (bystanders.Has(process)) continue;
    status.ranks.push_back(LookAt(job, member));
    status.ranks.back().label = LabelOf(job, labels, member);
    status.ranks.back().trouble = TroubleOf(process, now_ns);
    DescribeHost(process, now_ns, status.ranks.back());
    DescribeGap(member, now_ns, status.ranks.back());
    const model::HostProgress& progress = process.progress();
    last_ns =
        std::max({last_ns, progress.last_launch_ns, progress.last_device_end_ns, progress.last_left_out_ns});
  }
  if (last_ns != 0 && last_ns + kIdleNs < now_ns) status.idle_ns = now_ns - last_ns;
  status.hosts.assign(hosts.begin(), hosts.end());
  std::stable_sort(status.ranks.begin(), status.ranks.end(), [](const LiveRank& a, const LiveRank& b) {
    return a.rank.value_or(INT32_MAX) < b.rank.value_or(INT32_MAX);
  });
  double stepping = 0;
  double waited_ns = 0;
  LiveStep sum;
  status.steps = UINT64_MAX;
  for (size_t i = 0; i < status.ranks.size(); ++i) {
    const LiveRank& r = status.ranks[i];
    status.memory_bytes = std::max(status.memory_bytes, r.memory_bytes);
    if (!r.step.has_value()) continue;
    ++stepping;
    AddTo(sum, *r.step, 1);
    waited_ns += r.waited_ns;
    status.steps = std::min(status.steps, r.steps);
    if (!status.slowest.has_value() || r.late_ns > status.ranks[*status.slowest].late_ns) status.slowest = i;
  }
  if (stepping == 0) {
    status.steps = 0;
    return status;
  }
  LiveStep mean;
  AddTo(mean, sum, 1 / stepping);
  status.step = mean;
  if (sum.total_ns > 0) status.wait_share = std::min(1.0, waited_ns / sum.total_ns);
  if (stepping < 2 || status.ranks[*status.slowest].late_ns < kLateShare * mean.total_ns)
    status.slowest.reset();
  return status;
}

}  // namespace gpuprobe::analysis
