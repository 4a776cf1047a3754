#include "collector/analysis/build_report.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/communication/bucket_advice.h"
#include "collector/analysis/communication/call_timing.h"
#include "collector/analysis/communication/call_trace_report.h"
#include "collector/analysis/communication/collective_report.h"
#include "collector/analysis/communication/communication_report.h"
#include "collector/analysis/communication/communicator_report.h"
#include "collector/analysis/communication/link_model.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/bystander.h"
#include "collector/analysis/hangs/hang_verdicts.h"
#include "collector/analysis/hangs/hangs.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/host_time.h"
#include "collector/analysis/members.h"
#include "collector/analysis/memory/memory_holdings.h"
#include "collector/analysis/memory/memory_report.h"
#include "collector/analysis/names.h"
#include "collector/analysis/process_span.h"
#include "collector/analysis/steps/phase_report.h"
#include "collector/analysis/steps/step_growth.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/analysis/stragglers/long_steps.h"
#include "collector/analysis/stragglers/pipeline_report.h"
#include "collector/analysis/stragglers/straggler_report.h"
#include "collector/analysis/trust/clock_alignment.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/analysis/trust/own_cost.h"
#include "collector/analysis/units.h"
#include "collector/analysis/work/compute_report.h"
#include "collector/analysis/work/device_sharing.h"
#include "collector/analysis/work/driver_calls.h"
#include "collector/analysis/work/gpu_health.h"
#include "proto/cupti_versions.h"

namespace gpuprobe::analysis {
namespace {

std::string Who(const v1::Identity& id) {
  return HasRank(id) ? absl::StrCat("rank ", id.rank(), " (pid ", id.pid(), ")")
                     : absl::StrCat("pid ", id.pid());
}

void FillCopies(const model::ProcessModel& process, RankReport& r) {
  const auto& copies = process.totals().copies;
  for (size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].count == 0) continue;
    CopyReport& c = r.copies[static_cast<v1::CopyDirection>(i)];
    c.count = copies[i].count;
    c.bytes = copies[i].bytes;
    c.busy_ns = copies[i].busy.TotalNs();
    if (copies[i].duration_ns > 0) {
      c.gbytes_per_s = static_cast<double>(copies[i].bytes) / static_cast<double>(copies[i].duration_ns);
    }
  }
  // Without records of their own: their times are not known to overlap.
  for (const v1::SmallCopies& small : process.totals().self.small_copies()) {
    CopyReport& c = r.copies[small.direction()];
    c.count += small.copies();
    c.bytes += small.bytes();
    c.busy_ns += small.duration_ns();
    c.small += small.copies();
  }
}

// What is known of the process as a whole.
void FillProcess(const model::ProcessModel& process, RankReport& r) {
  const auto& totals = process.totals();
  r.cut_off_by_collector = process.end_state() == model::EndState::kCollectorLeft;
  r.cut_off = r.cut_off_by_collector || process.end_state() == model::EndState::kCutOff;
  r.end = HaltOf(process, UINT64_MAX);
  r.stops = StopsOf(process);
  r.graph_kernels = totals.graph_kernels;
  r.launch_delay_ns = process.joins().launch_delay_ns.Summarize();
  r.memset_count = totals.memsets;
  r.memset_bytes = totals.memset_bytes;
  r.memset_ns = totals.memset_ns;
  for (size_t i = 0; i < totals.syncs.size(); ++i) {
    if (totals.syncs[i].count == 0) continue;
    r.syncs[static_cast<v1::SyncKind>(i)] = {totals.syncs[i].count, totals.syncs[i].duration_ns};
    if (static_cast<v1::SyncKind>(i) == v1::SYNC_KIND_STREAM_WAIT_EVENT) continue;
    r.blocked.count += totals.syncs[i].count;
    r.blocked.duration_ns += totals.syncs[i].duration_ns;
  }
  r.phases = PhasesOf(process);
}

std::optional<LastMoments> MomentsOf(const ReportInput& input, const model::ProcessModel& process) {
  const v1::Identity& id = process.identity();
  for (const LastMoments& moments : input.last_moments) {
    if (moments.pid == id.pid() && moments.host == id.host() &&
        moments.process_start_ns == id.process_start_ns())
      return moments;
  }
  return std::nullopt;
}

// One of several GPUs of its process. Copies have no union here: those of one direction hardly overlap.
void FillDevice(const model::Member& member, RankReport& r) {
  r.is_device = true;
  r.is_first = member.place == 0;
  r.device = member.device();
  r.devices = {*r.device};
  const auto found = member.process->devices().find(*r.device);
  if (found == member.process->devices().end()) return;
  r.kernel_count = found->second.kernels;
  r.kernel_busy_ns = found->second.busy.TotalNs();
  for (const auto& [direction, copies] : found->second.copies) {
    r.copies[static_cast<v1::CopyDirection>(direction)] = {
        .count = copies.count,
        .bytes = copies.bytes,
        .busy_ns = copies.duration_ns,
        .gbytes_per_s = copies.duration_ns == 0
                            ? 0
                            : static_cast<double>(copies.bytes) / static_cast<double>(copies.duration_ns)};
  }
}

// Of a process of which no kernel is known: the one GPU on which it has memory, or that it sees.
std::optional<uint32_t> LikelyDevice(const model::ProcessModel& process) {
  const auto& holds = process.ledger().devices();
  if (holds.size() == 1) return holds.begin()->first;
  if (process.devices().size() == 1) return process.devices().begin()->first;
  return std::nullopt;
}

RankReport RankOf(const model::JobModel& job, const model::Member& member, const ProcessLabels& labels,
                  const ReportInput& input) {
  const model::ProcessModel& process = *member.process;
  const v1::Identity& id = process.identity();
  RankReport r;
  if (HasRank(id)) r.rank = id.rank();
  r.label = LabelOf(job, labels, member);
  r.host = id.host();
  r.pid = id.pid();
  r.start_ns = FirstNs(process);
  r.duration_ns = DurationNs(process);
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
  if (!r.device.has_value()) r.device = LikelyDevice(process);
  if (const auto device = member.IsDevice() ? member.device() : r.device; device.has_value())
    r.gpu_health = GpuHealthOf(process, *device);
  r.kernel_count = process.totals().kernels;
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    r.kernel_total_ns += kernel.time_ns.total();
    if (r.optimizer == Optimizer::kUnknown && !kernel.misnamed)
      r.optimizer = OptimizerNamed(process.String(kernel.name));
  });
  if (member.place == 0) {
    FillProcess(process, r);
    if (r.cut_off) r.last_moments = MomentsOf(input, process);
  }
  for (const v1::CopyDirection direction :
       {v1::COPY_DIRECTION_H2D, v1::COPY_DIRECTION_D2H, v1::COPY_DIRECTION_D2D, v1::COPY_DIRECTION_P2P})
    r.copies[direction];
  if (member.IsDevice()) {
    FillDevice(member, r);
  } else {
    FillCopies(process, r);
  }
  FillMemory(member, r);
  r.collectives = CollectivesOf(member);
  r.top_kernels = TopKernelsOf({member});
  r.steps = StepsOf(member, input.step_records);
  r.host_time = HostTimeOf({&member, 1});
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

std::string ClockWord(v1::CaptureClock clock) {
  return clock == v1::CAPTURE_CLOCK_NONE ? "" : EnumWord(clock);
}

// A window is one that ranks were ordered together: that of the same steps, or one that began at about the
// same time.
void FillOnDemand(const model::ProcessModel& process, Conditions& c) {
  if (!process.records_on_demand()) return;
  if (!c.on_demand.has_value()) c.on_demand.emplace();
  OnDemand& all = *c.on_demand;
  all.level = process.hello().level() == v1::RECORDING_LEVEL_CALLS ? "calls" : "idle";
  if (all.steps_by.empty()) all.steps_by = ClockWord(process.captures().clock());
  for (const model::Captures::Window& window : process.captures().windows()) {
    const std::optional<uint64_t> first = window.has_steps ? std::optional(window.first) : std::nullopt;
    const auto same = std::find_if(all.windows.begin(), all.windows.end(), [&](const CapturedWindow& other) {
      const bool overlap = window.start_ns < other.end_ns && other.start_ns < window.end_ns;
      return other.first_step == first && (first.has_value() || overlap);
    });
    const bool is_new = same == all.windows.end();
    CapturedWindow& merged = is_new ? all.windows.emplace_back() : *same;
    if (is_new)
      merged = {.first_step = first, .last_step = {}, .start_ns = window.start_ns, .end_ns = 0, .ranks = {}};
    if (window.has_steps) merged.last_step = std::max(merged.last_step.value_or(0), window.last);
    merged.start_ns = std::min(merged.start_ns, window.start_ns);
    merged.end_ns = std::max(merged.end_ns, window.end_ns);
    if (HasRank(process.identity())) merged.ranks.push_back(process.identity().rank());
  }
  std::sort(all.windows.begin(), all.windows.end(),
            [](const CapturedWindow& a, const CapturedWindow& b) { return a.start_ns < b.start_ns; });
}

// On which processes compute; 0 if some were not described, as the same one may have several ordinals.
int DevicesUsed(const model::JobModel& job) {
  std::set<std::string> used;  // uuids
  for (const auto& process : job.processes()) {
    const model::DeviceSteps& devices = process->device_steps();
    for (size_t place = 0; place < devices.size(); ++place) {
      if (!devices.IsDriven(place)) continue;
      const auto device = process->devices().find(*devices.At(place).ordinal);
      if (device == process->devices().end() || device->second.info.uuid().empty()) return 0;
      used.insert(device->second.info.uuid());
    }
  }
  return static_cast<int>(used.size());
}

void FillConditions(const model::JobModel& job, const Bystanders& bystanders, const ReportInput& input,
                    Conditions& c) {
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
    } else if (!bystanders.Has(*process)) {
      ++unranked;
    }
    c.world_size = std::max(c.world_size, id.world_size());
    recording_ranks = std::max(recording_ranks, process->hello().recording_ranks());
    FillStepsRecorded(*process, c);
    FillOnDemand(*process, c);
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
  c.devices_used = DevicesUsed(job);
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
  uint64_t explained = totals.records_missing;
  for (const auto& [reason, records] : totals.losses) {
    if (MayBeDeviceRecords(reason)) explained += records;
  }
  const uint64_t without = process.joins().without_record;
  return without - std::min(without, explained);
}

// Recording began while it ran. What refers to earlier allocations and communicators is then no loss.
Attached AttachedOf(const model::ProcessModel& process) {
  Attached attached{
      .who = Who(process.identity()), .ran_ns = 0, .earlier_allocations = 0, .earlier_communicators = 0};
  const uint64_t started_ns = process.identity().process_start_ns();
  const uint64_t begun_ns = process.hello().clock().realtime_ns();
  if (started_ns != 0 && begun_ns > started_ns) attached.ran_ns = begun_ns - started_ns;
  for (const auto& [reason, records] : process.totals().losses) {
    if (reason == v1::LOSS_ALLOCATION_UNKNOWN) attached.earlier_allocations = records;
    if (reason == v1::LOSS_COMMUNICATOR_UNKNOWN) attached.earlier_communicators = records;
  }
  return attached;
}

void FillTrust(const model::JobModel& job, const Bystanders& bystanders, const ReportInput& input, Trust& t) {
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
    const bool was_attached = process->hello().loaded_by() == v1::LOADED_BY_ATTACH;
    if (was_attached) t.attached.push_back(AttachedOf(*process));
    for (const auto& [reason, records] : totals.losses) {
      const bool is_earlier =
          reason == v1::LOSS_ALLOCATION_UNKNOWN || reason == v1::LOSS_COMMUNICATOR_UNKNOWN;
      if (!was_attached || !is_earlier) lost(reason, records);
    }
    lost(v1::LOSS_BATCH_MISSING, totals.records_missing);
    lost(v1::LOSS_NO_DEVICE_RECORD, LaunchesWithoutRecord(*process));
    t.recorded_elsewhere += totals.records_elsewhere;
    // What it did in the half second of the detachment is not of the recording.
    if (!was_attached) t.outside_window += totals.self.records_outside_window();
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
    t.other_names += process->OtherNames();
    t.misnamed_kernels += process->misnamed_kernels();
    t.host_time_error_ns = std::max(t.host_time_error_ns, totals.self.host_time_error_ns());
    t.range_pops_without_push += totals.self.range_pop_without_push();
    t.range_ends_without_start += totals.self.range_end_without_start();
    t.ranges_unclosed += totals.ranges_unclosed;
    const bool by_collector = process->end_state() == model::EndState::kCollectorLeft;
    if ((by_collector || process->end_state() == model::EndState::kCutOff) && !bystanders.Has(*process)) {
      t.cut_off.push_back({.who = Who(process->identity()),
                           .last_data_ns = LastNs(*process),
                           .by = by_collector ? CutOff::By::kCollector : CutOff::By::kProcess});
    }
    // Counters come with each roll-up.
    const bool is_unread = job.unread_hosts().contains(process->identity().host());
    if (process->kernels().empty() && process->hello().rolled_up() &&
        (process->totals().kernels > 0 || is_unread))
      ++t.ranks_without_detail;
    if (process->end_state() == model::EndState::kSaidByeIncomplete) {
      t.exit_incomplete.push_back(Who(process->identity()));
    }
  }
  for (const cupti::KnownDefect& defect : cupti::kKnownDefects) {
    if ((precautions & defect.precaution) != 0) {
      t.cupti_defects.push_back({.defect = std::string(defect.defect),
                                 .left_out = std::string(defect.left_out),
                                 .source = std::string(defect.source)});
    }
  }
  t.cost = OwnCostOf(job, durations_ns);
  const uint64_t all = t.records + t.lost_total + t.outside_window;
  if (all > 0) {
    t.coverage = static_cast<double>(t.records) / static_cast<double>(all);
  }
  const bool mixed = have_gpu_times.size() > 1;
  using TimingSource = Trust::TimingSource;
  t.timing_source = mixed                           ? TimingSource::kMixed
                    : have_gpu_times.contains(true) ? TimingSource::kCuptiActivity
                                                    : TimingSource::kNone;
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
    if (phase.name == model::StepPhase::kBackward) backward_ns = phase.time_ns.mean;
  }
  return AdviseBuckets(*report.communication.buckets, report.communication.links, backward_ns);
}

// In a job that stands still some ranks are in a step that others have completed.
void CountCompleteSteps(Report& report) {
  for (const RankReport& r : report.ranks) {
    if (r.steps.has_value() && report.steps.has_value())
      report.steps->count = std::min(report.steps->count, r.steps->count);
  }
}

}  // namespace

Report BuildReport(const model::JobModel& job, const ReportInput& input) {
  Report report;
  const Bystanders bystanders(job);
  FillConditions(job, bystanders, input, report.conditions);
  FillDiffering(job, report.conditions);
  const ProcessLabels labels(job);
  FillDeviceSharing(job, labels, report.conditions);
  FillDuplicateRanks(job, report.conditions);
  FillTrust(job, bystanders, input, report.trust);
  const Exchanges exchanges(job);
  report.compute = ComputeOf(job);
  report.driver_calls = DriverCallsOf(job);
  const bool pipeline = !report.compute.only_communicates && PipelineOf(job, exchanges).has_value();
  const model::Members members = job.ReportedMembers();  // a process's by device
  for (const model::Member& member : members) {
    if (bystanders.Has(*member.process)) continue;
    report.ranks.push_back(RankOf(job, member, labels, input));
    report.ranks.back().step_means = StepMeansOf(member);
    report.ranks.back().caused = CausedWaitOf(job, member, pipeline);
    if (std::optional<StepsReport>& steps = report.ranks.back().steps; steps.has_value()) {
      const auto behind = [&](uint64_t index) {
        return job.comparison().alignment().Behind(member.number, index);
      };
      steps->behind = behind(steps->count - 1);
      for (model::StepRecord& record : steps->records)
        record.index += static_cast<uint64_t>(behind(record.index));
    }
  }
  std::stable_sort(report.ranks.begin(), report.ranks.end(), [](const RankReport& a, const RankReport& b) {
    // Processes without a rank come last.
    return a.rank.value_or(INT32_MAX) < b.rank.value_or(INT32_MAX);
  });
  report.between_ranks = BetweenRanksOf(report.ranks);
  report.collectives = CollectivesOf(job);
  report.phases = PhasesOf(job);
  report.top_kernels = TopKernelsOf(members, input.all_kernels ? SIZE_MAX : kTopKernels);
  report.steps = StepsOf(job);
  report.host_time = HostTimeOf(members);
  report.clock = ClockReportOf(job);
  report.communication = CommunicationOf(report, job, exchanges, input.link_peak);
  report.communication.links = LinkModelsOf(job);
  report.communication.bucket_advice = BucketAdviceOf(report);
  SetHoldings(SizesInForward(job), report);
  report.compute.optimizer_traffic = OptimizerTrafficOf(report);
  report.stragglers = StragglersOf(job, report.ranks, report.communication.pipeline);
  report.long_steps = LongStepsOf(job);
  report.step_growth = StepGrowthOf(job);
  SetPeakShares(report);
  report.call_trace = CallTraceOf(job);
  report.communicators = CommunicatorsOf(job);
  report.hangs = HangsOf(job, JobEndNs(job), input.hang_after_ns);
  report.past_hangs = TakeVerdicts(job, report.hangs);
  if (StandstillNs(report.hangs).has_value()) CountCompleteSteps(report);
  report.utilisation = UtilisationOf(input.work, report.conditions,
                                     report.steps.has_value() ? report.steps->time_ns.mean / 1e9 : 0);
  report.findings = FindingsOf(report);
  return report;
}

}  // namespace gpuprobe::analysis
