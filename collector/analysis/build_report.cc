#include "collector/analysis/build_report.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/bucket_advice.h"
#include "collector/analysis/bystander.h"
#include "collector/analysis/call_timing.h"
#include "collector/analysis/clock_alignment.h"
#include "collector/analysis/collective_report.h"
#include "collector/analysis/communication_report.h"
#include "collector/analysis/communicator_report.h"
#include "collector/analysis/compute_report.h"
#include "collector/analysis/duplicate_ranks.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hang_verdicts.h"
#include "collector/analysis/hangs.h"
#include "collector/analysis/link_model.h"
#include "collector/analysis/memory_holdings.h"
#include "collector/analysis/memory_report.h"
#include "collector/analysis/names.h"
#include "collector/analysis/phase_report.h"
#include "collector/analysis/step_report.h"
#include "collector/analysis/straggler_report.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

std::string Who(const v1::Identity& id) {
  return HasRank(id) ? absl::StrCat("rank ", id.rank(), " (pid ", id.pid(), ")")
                     : absl::StrCat("pid ", id.pid());
}

uint64_t FirstNs(const model::ProcessModel& process) {
  const uint64_t hello = process.hello().clock().realtime_ns();
  const uint64_t first = process.totals().first_ns;
  if (hello == 0) return first == UINT64_MAX ? 0 : first;
  return std::min(hello, first);
}

uint64_t LastNs(const model::ProcessModel& process) {
  return std::max(process.totals().last_ns, process.totals().last_clock_ns);
}

uint64_t DurationNs(const model::ProcessModel& process) {
  const uint64_t first = FirstNs(process);
  const uint64_t last = LastNs(process);
  return last > first ? last - first : 0;
}

void FillCopies(const model::ProcessModel& process, RankReport& r) {
  for (const char* direction : {"h2d", "d2h", "d2d", "p2p"}) r.copies[direction];
  const auto& copies = process.totals().copies;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].count == 0) continue;
    CopyReport& c = r.copies[std::string(DirectionName(static_cast<v1::CopyDirection>(i)))];
    c.count = copies[i].count;
    c.bytes = copies[i].bytes;
    c.busy_ns = copies[i].busy.TotalNs();
    if (copies[i].duration_ns > 0) {
      c.gbytes_per_s = static_cast<double>(copies[i].bytes) / static_cast<double>(copies[i].duration_ns);
    }
  }
  // Without records of their own: their times are not known to overlap.
  for (const v1::SmallCopies& small : process.totals().self.small_copies()) {
    CopyReport& c = r.copies[std::string(DirectionName(small.direction()))];
    c.count += small.copies();
    c.bytes += small.bytes();
    c.busy_ns += small.duration_ns();
    c.small += small.copies();
  }
}

RankReport RankOf(const model::ProcessModel& process, const ProcessLabels& labels, const ReportInput& input) {
  const v1::Identity& id = process.identity();
  const auto& totals = process.totals();
  RankReport r;
  if (HasRank(id)) r.rank = id.rank();
  r.label = labels.Of(process);
  r.host = id.host();
  r.pid = id.pid();
  r.start_ns = FirstNs(process);
  r.duration_ns = DurationNs(process);
  r.cut_off_by_collector = process.end_state() == model::EndState::kCollectorLeft;
  r.cut_off = r.cut_off_by_collector || process.end_state() == model::EndState::kCutOff;
  r.end = HaltOf(process, UINT64_MAX);
  r.stops = StopsOf(process);
  r.host_load = HostLoadOf(process, 0);
  uint64_t most = 0;
  for (const auto& [ordinal, device] : process.devices()) {
    if (device.kernels == 0) continue;
    r.devices.push_back(ordinal);
    r.kernel_busy_ns += device.busy.TotalNs();
    if (device.kernels > most) {
      most = device.kernels;
      r.device = ordinal;
    }
  }
  if (!r.device.has_value() && !process.devices().empty()) r.device = process.devices().begin()->first;
  r.kernel_count = totals.kernels;
  for (const auto& kernel : process.kernels()) {
    r.kernel_total_ns += kernel->time_ns.total();
    if (r.optimizer.empty()) r.optimizer = OptimizerNamed(process.String(kernel->name));
  }
  r.graph_kernels = totals.graph_kernels;
  r.launch_delay_ns = process.joins().launch_delay_ns.Summarize();
  r.memset_count = totals.memsets;
  r.memset_bytes = totals.memset_bytes;
  r.memset_ns = totals.memset_ns;
  for (size_t i = 0; i < totals.syncs.size(); ++i) {
    if (totals.syncs[i].count == 0) continue;
    r.syncs[std::string(SyncName(static_cast<v1::SyncKind>(i)))] = {totals.syncs[i].count,
                                                                    totals.syncs[i].duration_ns};
    if (static_cast<v1::SyncKind>(i) == v1::SYNC_KIND_STREAM_WAIT_EVENT) continue;
    r.blocked.count += totals.syncs[i].count;
    r.blocked.duration_ns += totals.syncs[i].duration_ns;
  }
  FillCopies(process, r);
  FillMemory(process, r);
  r.collectives = CollectivesOf(process);
  r.phases = PhasesOf(process);
  r.top_kernels = TopKernelsOf({&process});
  r.steps = StepsOf(process, input.step_records);
  return r;
}

// Requested settings are the same on all ranks of a job, as its environment is.
void FillStepsRecorded(const model::ProcessModel& process, Conditions& c) {
  if (!process.hello().has_recording_steps()) return;
  const v1::RecordingSteps& asked = process.hello().recording_steps();
  if (!c.steps_recorded.has_value()) {
    c.steps_recorded =
        StepsRecorded{.marker = asked.marker(), .start = asked.start(), .stop = {}, .every = asked.every()};
    if (asked.stop() != 0) c.steps_recorded->stop = asked.stop();
  }
  c.steps_recorded->begun = std::max(c.steps_recorded->begun, process.totals().self.steps_begun());
  c.steps_recorded->recorded = std::max(c.steps_recorded->recorded, process.steps().count());
}

void FillConditions(const model::JobModel& job, const ReportInput& input, Conditions& c) {
  c.collector_version = input.collector_version;
  c.command_line = input.command_line;
  c.step_marker = job.step_marker().text();
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  std::set<std::string> hosts;
  std::set<int> ranks;
  int unranked = 0;
  uint32_t recording_ranks = 0;
  std::set<std::pair<std::string, std::string>> seen_devices;
  for (const auto& process : job.processes()) {
    const v1::Identity& id = process->identity();
    const v1::Versions& v = process->versions();
    hosts.insert(id.host());
    if (HasRank(id)) {
      ranks.insert(id.rank());
    } else if (!IsBystander(*process, job)) {
      ++unranked;
    }
    c.world_size = std::max(c.world_size, id.world_size());
    recording_ranks = std::max(recording_ranks, process->hello().recording_ranks());
    FillStepsRecorded(*process, c);
    if (c.job.empty()) c.job = id.job();
    if (c.command_line.empty()) c.command_line.assign(id.command_line().begin(), id.command_line().end());
    if (c.cuda_driver.empty()) c.cuda_driver = CudaVersionName(v.cuda_driver());
    if (c.cuda_runtime.empty()) c.cuda_runtime = CudaVersionName(v.cuda_runtime());
    if (c.cupti.empty() && v.cupti() != 0) c.cupti = absl::StrCat(v.cupti());
    if (c.nccl.empty()) c.nccl = NcclVersionName(v.nccl());
    if (c.probe_version.empty()) c.probe_version = process->hello().probe_version();
    if (FirstNs(*process) != 0) first = std::min(first, FirstNs(*process));
    last = std::max(last, LastNs(*process));
    for (const auto& [ordinal, device] : process->devices()) {
      if (!seen_devices.insert(DeviceKey(id.host(), ordinal, device.info.uuid())).second) continue;
      c.devices.push_back(
          {.host = id.host(),
           .ordinal = ordinal,
           .name = device.info.name(),
           .uuid = device.info.uuid(),
           .memory_bytes = device.info.memory_bytes(),
           .memory_gbytes_per_s = static_cast<double>(device.info.memory_bandwidth_bytes_per_s()) / 1e9});
    }
  }
  c.hosts.assign(hosts.begin(), hosts.end());
  c.start_ns = first == UINT64_MAX ? 0 : first;
  c.duration_ns = last > c.start_ns ? last - c.start_ns : 0;
  c.ranks_heard = static_cast<int>(ranks.size()) + unranked;
  if (c.world_size > 0) c.ranks_expected = c.world_size;
  if (recording_ranks > 0) c.ranks_expected = static_cast<int>(recording_ranks);
}

// "NCCL 2.27.3 on 1 rank, 2.28.9 on 3"
void Differ(const std::string& what, const std::map<std::string, int>& seen, Conditions& c) {
  if (seen.size() < 2) return;
  std::vector<std::string> parts;
  parts.reserve(seen.size());
  for (const auto& [value, count] : seen)
    parts.push_back(absl::StrCat(value, " on ", count, count == 1 ? " rank" : " ranks"));
  c.differing.push_back(absl::StrCat(what, " ", absl::StrJoin(parts, ", ")));
}

// A process that ran kernels on a device, and from when to when.
struct DeviceUser {
  const model::ProcessModel* process = nullptr;
  uint32_t ordinal = 0;
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
};

// Those whose kernels ran while another's did: one that began after all others had ended took turns with
// nobody.
std::vector<DeviceUser> UsersAtTheSameTime(std::vector<DeviceUser> users) {
  std::vector<DeviceUser> found;
  for (const DeviceUser& user : users) {
    const bool shares = std::any_of(users.begin(), users.end(), [&user](const DeviceUser& other) {
      return other.process != user.process && other.first_ns < user.last_ns && user.first_ns < other.last_ns;
    });
    if (shares) found.push_back(user);
  }
  const auto rank = [](const DeviceUser& user) {
    const v1::Identity& id = user.process->identity();
    return HasRank(id) ? id.rank() : INT32_MAX;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&rank](const DeviceUser& a, const DeviceUser& b) { return rank(a) < rank(b); });
  return found;
}

void FillSharedDevices(const model::JobModel& job, const ProcessLabels& labels, Conditions& c) {
  std::map<std::pair<std::string, std::string>, std::vector<DeviceUser>> devices;  // by host and uuid
  for (const auto& process : job.processes()) {
    for (const auto& [ordinal, device] : process->devices()) {
      if (device.kernels == 0 || device.info.uuid().empty()) continue;
      devices[{process->identity().host(), device.info.uuid()}].push_back({.process = process.get(),
                                                                           .ordinal = ordinal,
                                                                           .first_ns = device.first_kernel_ns,
                                                                           .last_ns = device.last_kernel_ns});
    }
  }
  for (auto& [key, all] : devices) {
    const std::vector<DeviceUser> users = UsersAtTheSameTime(std::move(all));
    if (users.empty()) continue;
    SharedDevice shared{
        .host = key.first, .ordinal = static_cast<int>(users.front().ordinal), .ranks = {}, .processes = {}};
    for (const DeviceUser& user : users) {
      const v1::Identity& id = user.process->identity();
      shared.processes.push_back(labels.Of(*user.process));
      if (HasRank(id) && (shared.ranks.empty() || shared.ranks.back() != id.rank()))
        shared.ranks.push_back(id.rank());
    }
    c.shared_devices.push_back(std::move(shared));
  }
}

void FillDuplicateRanks(const model::JobModel& job, Conditions& c) {
  for (const DuplicateRankProcesses& duplicate : DuplicateRanksOf(job)) {
    DuplicateRank out{.rank = duplicate.rank, .pids = {}};
    for (const model::ProcessModel* process : duplicate.processes)
      out.pids.push_back(process->identity().pid());
    c.duplicate_ranks.push_back(std::move(out));
  }
}

void FillDiffering(const model::JobModel& job, Conditions& c) {
  std::map<std::string, int> device;
  std::map<std::string, int> memory;
  std::map<std::string, int> driver;
  std::map<std::string, int> runtime;
  std::map<std::string, int> nccl;
  for (const auto& process : job.processes()) {
    const v1::Versions& v = process->versions();
    for (const auto& [ordinal, totals] : process->devices()) {
      if (totals.info.name().empty()) continue;
      ++device[totals.info.name()];
      ++memory[Bytes(totals.info.memory_bytes())];
    }
    if (v.cuda_driver() != 0) ++driver[CudaVersionName(v.cuda_driver())];
    if (v.cuda_runtime() != 0) ++runtime[CudaVersionName(v.cuda_runtime())];
    if (v.nccl() != 0) ++nccl[NcclVersionName(v.nccl())];
  }
  Differ("Device", device, c);
  Differ("Device memory", memory, c);
  Differ("CUDA driver", driver, c);
  Differ("CUDA runtime", runtime, c);
  Differ("NCCL", nccl, c);
}

// Whether launches may be without a record because of these losses.
bool MayBeDeviceRecords(int reason) {
  return reason != v1::LOSS_EVENT_RING_FULL && reason != v1::LOSS_THREAD_SLOTS_FULL &&
         reason != v1::LOSS_COMMUNICATOR_UNKNOWN && reason != v1::LOSS_ALLOCATION_UNKNOWN &&
         reason != v1::LOSS_INTERRUPTED && reason != v1::LOSS_UNREADABLE;
}

// Launches whose records never came, for no reason that is counted already. Not known for a process that was
// cut off; where records were left out on request, or to hold the budget, launches rightly lack them.
uint64_t LaunchesWithoutRecord(const model::ProcessModel& process) {
  const auto& totals = process.totals();
  const v1::SelfReport& self = totals.self;
  const bool heard_to_the_end = process.end_state() == model::EndState::kSaidBye ||
                                process.end_state() == model::EndState::kSaidByeIncomplete;
  if (process.hello().instance() == 0 || !heard_to_the_end || self.records_outside_window() > 0 ||
      self.detail_reductions() > 0 || self.detail_level() != v1::DETAIL_LEVEL_FULL || self.yields() > 0 ||
      !process.has_gpu_times()) {
    return 0;
  }
  uint64_t explained = totals.records_missing + self.launch_cost().unrecorded_launches();
  for (const auto& [reason, records] : totals.losses) {
    if (MayBeDeviceRecords(reason)) explained += records;
  }
  const uint64_t without = process.joins().without_record;
  return without - std::min(without, explained);
}

void FillTrust(const model::JobModel& job, const ReportInput& input, Trust& t) {
  std::set<bool> have_gpu_times;
  std::vector<uint64_t> durations_ns;
  uint32_t precautions = 0;
  for (const auto& process : job.processes()) {
    const auto& totals = process->totals();
    precautions |= process->versions().cupti_precautions();
    t.records += totals.records;
    const auto lost = [&t](int reason, uint64_t records) {
      if (records == 0) return;
      t.lost[LossName(reason)] += records;
      t.lost_total += records;
    };
    for (const auto& [reason, records] : totals.losses) lost(reason, records);
    lost(v1::LOSS_BATCH_MISSING, totals.records_missing);
    lost(v1::LOSS_NO_DEVICE_RECORD, LaunchesWithoutRecord(*process));
    t.recorded_elsewhere += totals.records_elsewhere;
    t.outside_window += totals.self.records_outside_window();
    for (const v1::UnknownKind& unknown : totals.self.unknown_kinds())
      t.unknown_kinds[ActivityKindName(unknown.kind())] += unknown.records();
    for (const v1::UnknownFunction& function : totals.self.unknown_functions()) {
      uint64_t& imports = t.unknown_functions[function.name()];
      imports = std::max<uint64_t>(imports, function.imports());
    }
    t.other_unknown_functions =
        std::max<uint64_t>(t.other_unknown_functions, totals.self.other_unknown_functions());
    t.detail_level = std::max(t.detail_level, totals.self.detail_level());
    t.detail_reductions += totals.self.detail_reductions();
    t.reduced_ns = std::max(t.reduced_ns, totals.self.reduced_ns());
    constexpr int kOtherSubscriber = 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    if (!process->has_gpu_times() && totals.self.last_cupti_error() == kOtherSubscriber) t.cupti_taken = true;
    t.yields += totals.self.yields();
    t.yielded_ns = std::max(t.yielded_ns, totals.self.yielded_ns());
    have_gpu_times.insert(process->has_gpu_times());
    durations_ns.push_back(DurationNs(*process));
    if (std::abs(totals.clock_step_ns) > std::abs(t.clock_step_ns)) t.clock_step_ns = totals.clock_step_ns;
    if (std::abs(process->DeviceAheadNs()) > std::abs(t.device_clock_ahead_ns))
      t.device_clock_ahead_ns = process->DeviceAheadNs();
    t.batches_missing += totals.batches_missing;
    t.device_records_unattributed += process->joins().unattributed;
    t.device_records_late += process->joins().late;
    t.invalid_times += totals.reversed_times;
    t.host_time_error_ns = std::max(t.host_time_error_ns, totals.self.host_time_error_ns());
    t.range_pops_without_push += totals.self.range_pop_without_push();
    t.range_ends_without_start += totals.self.range_end_without_start();
    t.ranges_unclosed += totals.ranges_unclosed;
    const bool by_collector = process->end_state() == model::EndState::kCollectorLeft;
    if ((by_collector || process->end_state() == model::EndState::kCutOff) && !IsBystander(*process, job)) {
      t.cut_off.push_back(
          {.who = Who(process->identity()), .last_data_ns = LastNs(*process), .by_collector = by_collector});
    }
    if (process->end_state() == model::EndState::kSaidByeIncomplete) {
      t.exit_incomplete.push_back(Who(process->identity()));
    }
  }
  for (const cupti::KnownDefect& defect : cupti::kKnownDefects) {
    if ((precautions & defect.precaution) != 0) t.cupti_defects.push_back(&defect);
  }
  t.cost = OwnCostOf(job, durations_ns);
  const uint64_t all = t.records + t.lost_total + t.outside_window + t.cost.unrecorded_launches;
  if (all > 0) {
    t.coverage = static_cast<double>(t.records) / static_cast<double>(all);
  }
  const bool mixed = have_gpu_times.size() > 1;
  t.timing_source = mixed ? "mixed" : have_gpu_times.contains(true) ? "cupti_activity" : "none";
  t.damaged_logs = input.damaged_logs;
  t.unrecorded_frames = input.unrecorded_frames;
  t.detail_since_ns = input.detail_since_ns;
}

}  // namespace

namespace {

std::optional<BucketAdvice> BucketAdviceOf(const Report& report) {
  if (!report.communication.buckets.has_value() || !report.steps.has_value()) return std::nullopt;
  double backward_ns = 0;
  for (const StepsReport::Phase& phase : report.steps->phases) {
    if (phase.name == "backward") backward_ns = phase.time_ns.mean;
  }
  return AdviseBuckets(*report.communication.buckets, report.link_models, backward_ns);
}

}  // namespace

Report BuildReport(const model::JobModel& job, const ReportInput& input) {
  Report report;
  FillConditions(job, input, report.conditions);
  FillDiffering(job, report.conditions);
  const ProcessLabels labels(job);
  FillSharedDevices(job, labels, report.conditions);
  FillDuplicateRanks(job, report.conditions);
  FillTrust(job, input, report.trust);
  std::vector<const model::ProcessModel*> processes;
  for (const auto& process : job.processes()) {
    if (IsBystander(*process, job)) {
      processes.push_back(process.get());
      continue;
    }
    report.ranks.push_back(RankOf(*process, labels, input));
    report.ranks.back().step_means = StepMeansOf(*process);
    report.ranks.back().caused = CausedWaitOf(job, processes.size());
    if (std::optional<StepsReport>& steps = report.ranks.back().steps; steps.has_value()) {
      const auto behind = [&](uint64_t index) {
        return job.comparison().alignment().Behind(static_cast<uint32_t>(processes.size()), index);
      };
      steps->behind = behind(steps->count - 1);
      for (model::StepRecord& record : steps->records)
        record.index += static_cast<uint64_t>(behind(record.index));
    }
    processes.push_back(process.get());
  }
  std::stable_sort(report.ranks.begin(), report.ranks.end(), [](const RankReport& a, const RankReport& b) {
    // Processes without a rank come last.
    return a.rank.value_or(INT32_MAX) < b.rank.value_or(INT32_MAX);
  });
  report.collectives = CollectivesOf(job);
  report.phases = PhasesOf(job);
  report.top_kernels = TopKernelsOf(processes, input.all_kernels ? SIZE_MAX : kTopKernels);
  report.compute = ComputeOf(job);
  report.steps = StepsOf(job);
  report.clock = ClockReportOf(job);
  report.link_models = LinkModelsOf(job);
  report.communication = CommunicationOf(report, job, input.link_peak);
  report.communication.bucket_advice = BucketAdviceOf(report);
  SetHoldings(SizesInForward(job), report);
  report.compute.optimizer_traffic = OptimizerTrafficOf(report);
  report.stragglers = StragglersOf(job, report.ranks, report.communication.pipeline);
  report.long_steps = LongStepsOf(job);
  SetPeakShares(report);
  report.communicators = CommunicatorsOf(job);
  report.hangs = HangsOf(job, JobEndNs(job), input.hang_after_ns);
  report.past_hangs = TakeVerdicts(job, report.hangs);
  report.utilisation = UtilisationOf(input.work, report.conditions,
                                     report.steps.has_value() ? report.steps->time_ns.mean / 1e9 : 0);
  report.findings = FindingsOf(report);
  return report;
}

}  // namespace gpuprobe::analysis
