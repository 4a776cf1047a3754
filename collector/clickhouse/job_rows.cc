#include "collector/clickhouse/job_rows.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "collector/analysis/finding_place.h"
#include "collector/analysis/hangs/bystander.h"
#include "collector/analysis/names.h"
#include "collector/analysis/process_span.h"
#include "collector/model/steps/warmup.h"
#include "collector/report/words.h"

namespace gpuprobe::clickhouse {
namespace {

constexpr double kNsPerS = 1e9;
// Parts of the state: what changes with each step, and what changes once a minute or with a report.
constexpr char kStepsPart[] = "steps";
constexpr char kMinutePart[] = "minute";
// Between looks, steps are written when there are so many.
constexpr uint64_t kFollowed = 64;
// Raised when what the state consists of changes.
constexpr uint32_t kStateFormat = 1;

model::Members MembersOf(const model::JobModel& job) {
  const analysis::Bystanders bystanders(job);
  model::Members members = job.ReportedMembers();
  std::erase_if(members, [&](const model::Member& member) { return bystanders.Has(*member.process); });
  return members;
}

int32_t RankOf(const model::Member& member) {
  const v1::Identity& id = member.process->identity();
  return analysis::HasRank(id) ? id.rank() : -1;
}

int32_t DeviceOf(const model::Member& member) {
  const std::optional<uint32_t> device = member.device();
  return device.has_value() ? static_cast<int32_t>(*device) : -1;
}

const v1::Device* Described(const model::ProcessModel& process, uint32_t ordinal) {
  const auto found = process.devices().find(ordinal);
  return found == process.devices().end() ? nullptr : &found->second.info;
}

// The one with most of its kernels.
std::optional<uint32_t> BusiestOf(const model::Member& member) {
  if (member.device().has_value()) return member.device();
  std::optional<uint32_t> busiest;
  uint64_t most = 0;
  for (const auto& [ordinal, device] : member.process->devices()) {
    if (device.kernels <= most) continue;
    most = device.kernels;
    busiest = ordinal;
  }
  return busiest;
}

// What a member's sums are known by: it keeps that if the job is read again, by another hub, too.
template <typename... What>
uint64_t PlaceOf(const model::Member& member, const What&... what) {
  const v1::Identity& id = member.process->identity();
  std::string place =
      absl::StrCat(id.host(), " ", id.pid(), " ", id.process_start_ns(), " ", DeviceOf(member));
  (absl::StrAppend(&place, " ", what), ...);
  return std::hash<std::string>()(place);
}

std::string OperationOf(const model::ProcessModel& process, const model::CollectiveSeries& series) {
  std::vector<std::string> names;
  for (const model::CollectivePart& part : series.parts) names.push_back(process.String(part.op));
  return absl::StrJoin(names, "+");
}

// A state of a run is a file of the spool.
std::string StateName(const std::string& run) { return absl::StrReplaceAll(run, {{"/", "@"}}); }

}  // namespace

JobRows::JobRows(Facts facts, Writer& writer) : facts_(std::move(facts)), writer_(writer) {
  const auto load = [&](const char* part, auto visit) {
    const auto found = writer_.found().find({StateName(facts_.run), part});
    if (found == writer_.found().end()) return;
    std::string_view bytes = found->second;
    uint32_t format = 0;
    if (!binary::Get(bytes, format) || format != kStateFormat) return;
    model::StateReader archive(bytes);
    visit(archive);
  };
  load(kStepsPart, [&](auto& archive) { VisitSteps(archive); });
  load(kMinutePart, [&](auto& archive) { VisitMinute(archive); });
}

void JobRows::Commit(bool all, bool over) {
  if (batch_.empty() && !over) return;
  States states;
  const auto save = [&](const char* part, auto visit) {
    std::string& bytes = states[{StateName(facts_.run), part}];
    if (over) return;
    binary::Put(bytes, kStateFormat);
    model::StateWriter archive;
    visit(archive);
    bytes += archive.Take();
  };
  save(kStepsPart, [&](auto& archive) { VisitSteps(archive); });
  if (all || over) save(kMinutePart, [&](auto& archive) { VisitMinute(archive); });
  writer_.Add(batch_, states);
  batch_ = Batch();
}

bool JobRows::KnowsRevision(const model::JobModel& job) {
  uint64_t revisions = 0;
  for (const model::Member& member : job.members()) revisions += member.steps().revisions();
  // Another hub's job, which is read from the start: these steps were written, or counted anew later.
  if (revisions < revisions_) return false;
  if (revisions > revisions_) {
    revisions_ = revisions;
    ++revision_;
    next_.clear();
  }
  return true;
}

void JobRows::WriteSteps(const model::JobModel& job, bool all) {
  if (!KnowsRevision(job)) return;
  for (const model::Member& member : job.members()) {
    if (member.IsReported()) WriteStepsOf(job, member, all);
  }
}

void JobRows::WriteStepsOf(const model::JobModel& job, const model::Member& member, bool all) {
  const std::deque<model::StepRecord>& steps = member.steps().steps();
  if (steps.empty() || (!all && member.steps().count() < model::kWarmupLook)) return;
  uint64_t& next = next_[PlaceOf(member)];
  if (steps.front().index > next) AddLoss(StepRow::kTable, "forgotten", steps.front().index - next);
  for (const model::StepRecord& step : steps) {
    if (step.index < next) continue;
    if (!all && step.index + kSettled > steps.back().index) break;
    next = step.index + 1;
    const int64_t behind = job.comparison().alignment().Behind(member.number, step.index);
    const auto phase = [&](model::StepPhase which) { return step.phase_ns[static_cast<size_t>(which)]; };
    StepRow row;
    row.of = facts_.key;
    row.revision = revision_;
    row.step = step.index + static_cast<uint64_t>(behind);
    row.rank = RankOf(member);
    row.device = DeviceOf(member);
    row.host.text = member.process->identity().host();
    row.start.ns = member.process->Realtime(step.start_ns);
    row.total_ns = step.total_ns();
    row.compute_ns = step.compute_ns;
    row.exposed_comm_ns = step.exposed_comm_ns;
    row.copy_ns = step.copy_ns;
    row.host_bound_ns = step.host_bound_ns;
    row.input_wait_ns = step.input_ns;
    row.sync_ns = step.sync_ns;
    row.memory_ns = step.memory_ns;
    row.pause_ns = step.pause_ns;
    row.launch_gap_ns = step.launch_gap_ns;
    row.unknown_ns = step.unknown_ns;
    row.comm_ns = step.comm_ns;
    row.h2d_phase_ns = phase(model::StepPhase::kH2d);
    row.forward_ns = phase(model::StepPhase::kForward);
    row.backward_ns = phase(model::StepPhase::kBackward);
    row.optimizer_ns = phase(model::StepPhase::kOptimizer);
    row.operations = step.operations;
    row.lost_operations = step.lost;
    row.error_ns = step.error_ns;
    row.warmup = step.warmup;
    row.incomplete = step.incomplete;
    batch_.Add(row);
  }
}

JobRows::Sums JobRows::Since(uint64_t place, const Sums& now) {
  Sums& last = sums_[place];
  // Sums of calls that are compared later than they are counted only grow; nothing else is written.
  const auto grown = [](uint64_t to, uint64_t from) { return to > from ? to - from : 0; };
  const Sums since = {.calls = grown(now.calls, last.calls),
                      .bytes = grown(now.bytes, last.bytes),
                      .time_ns = grown(now.time_ns, last.time_ns),
                      .wait_ns = grown(now.wait_ns, last.wait_ns),
                      .transfer_ns = grown(now.transfer_ns, last.transfer_ns)};
  last = now;
  return since;
}

void JobRows::WriteRank(const model::JobModel& job, const model::Member& member, uint64_t now_ns) {
  const model::ProcessModel& process = *member.process;
  const model::StepStatistics& steps = member.steps().statistics();
  RankRow row;
  row.of = facts_.key;
  row.updated.ns = now_ns;
  row.begun.ns = analysis::FirstNs(process);
  row.rank = RankOf(member);
  row.pid = process.identity().pid();
  row.host.text = process.identity().host();
  if (const auto device = BusiestOf(member); device.has_value()) {
    row.device = static_cast<int32_t>(*device);
    if (const v1::Device* info = Described(process, *device); info != nullptr) {
      row.gpu_uuid.text = info->uuid();
      row.gpu_name.text = info->name();
    }
  }
  row.probe.text = process.hello().probe_version();
  row.steps = member.steps().count();
  row.measured_steps = steps.total_ns.count();
  row.step_ns = steps.total_ns.total();
  row.compute_ns = steps.compute_ns.total();
  row.exposed_comm_ns = steps.exposed_comm_ns.total();
  row.copy_ns = steps.copy_ns.total();
  row.idle_ns = steps.idle_ns.total();
  const auto& blame = job.comparison().blame();
  if (member.number < blame.size()) {
    row.caused_wait_ns = blame[member.number].caused_mean_ns;
    row.waited_ns = blame[member.number].waited_ns;
  }
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    row.kernels += kernel.time_ns.count();
    row.kernel_ns += kernel.time_ns.total();
  });
  if (member.place == 0) {
    row.records = process.totals().records;
    row.lost_records = process.totals().records_missing;
    for (const auto& [reason, records] : process.totals().losses) row.lost_records += records;
  }
  batch_.Add(row);
}

void JobRows::WriteLevels(const model::Member& member, uint64_t now_ns) {
  const model::ProcessModel& process = *member.process;
  for (const auto& [ordinal, memory] : process.ledger().devices()) {
    if (member.IsDevice() && process.device_steps().ReportedPlaceOf(ordinal) != member.place) continue;
    LevelRow row;
    row.of = facts_.key;
    row.time.ns = now_ns;
    row.rank = RankOf(member);
    row.host.text = process.identity().host();
    row.device = static_cast<int32_t>(ordinal);
    row.memory_live_bytes = memory.live_bytes;
    row.memory_high_bytes = memory.high_water_bytes;
    if (const v1::Device* info = Described(process, ordinal); info != nullptr) {
      row.gpu_uuid.text = info->uuid();
      row.memory_capacity_bytes = info->memory_bytes();
    }
    if (const auto health = process.health().find(ordinal); health != process.health().end()) {
      row.clock_mhz = health->second.clock_mhz();
      row.power_w = health->second.power_milliwatts() / 1000.0;
      row.temperature_c = health->second.temperature_celsius();
      row.gpu_errors = health->second.xid_count();
      for (int i = 0; i < v1::ClockLimit_ARRAYSIZE; ++i)
        row.limited_ns += health->second.LimitedNs(static_cast<v1::ClockLimit>(i));
    }
    batch_.Add(row);
  }
}

void JobRows::WriteCollectives(const model::Member& member, uint64_t now_ns) {
  const model::ProcessModel& process = *member.process;
  member.ForEachSeries([&](const model::CollectiveSeries& series) {
    const v1::Communicator* comm = process.FindCommunicator(series.comm);
    const std::string operation = OperationOf(process, series);
    const Sums since = Since(
        PlaceOf(member, series.comm, series.size_bytes, series.mixed_sizes, series.calls_per_plan, operation),
        {.calls = series.calls,
         .bytes = series.bytes,
         .time_ns = series.time_ns.total(),
         .wait_ns = member.Compared(series).wait_ns,
         .transfer_ns = member.Compared(series).transfer_ns});
    if (since.calls == 0 && since.time_ns == 0 && since.wait_ns == 0) return;
    CollectiveRow row;
    row.of = facts_.key;
    row.time.ns = now_ns;
    row.window_ns = window_ns_;
    row.rank = RankOf(member);
    row.host.text = process.identity().host();
    if (comm != nullptr) {
      row.communicator.text = analysis::CommName(comm->hash());
      row.communicator_ranks = static_cast<uint32_t>(std::max(comm->ranks(), 0));
    }
    row.operation.text = operation;
    row.size_bytes = series.mixed_sizes ? 0 : series.size_bytes;
    row.calls = since.calls;
    row.bytes = since.bytes;
    row.time_ns = since.time_ns;
    row.wait_ns = since.wait_ns;
    row.transfer_ns = since.transfer_ns;
    batch_.Add(row);
  });
}

void JobRows::WriteKernels(const model::Member& member, uint64_t now_ns) {
  const model::ProcessModel& process = *member.process;
  std::vector<KernelRow> rows;
  member.ForEachKernel([&](const model::KernelTotals& kernel) {
    const std::string& name = process.String(kernel.name);
    const Sums since = Since(PlaceOf(member, kernel.device, name),
                             {.calls = kernel.time_ns.count(), .time_ns = kernel.time_ns.total()});
    if (since.calls == 0) return;
    KernelRow& row = rows.emplace_back();
    row.device = static_cast<int32_t>(kernel.device);
    row.kernel.text = name;
    row.calls = since.calls;
    row.time_ns = since.time_ns;
  });
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.time_ns > b.time_ns; });
  if (rows.size() > kMostKernels) {
    KernelRow others;
    others.device = DeviceOf(member);
    for (size_t i = kMostKernels - 1; i < rows.size(); ++i) {
      others.calls += rows[i].calls;
      others.time_ns += rows[i].time_ns;
    }
    rows.resize(kMostKernels - 1);
    rows.push_back(std::move(others));
  }
  for (KernelRow& row : rows) {
    row.of = facts_.key;
    row.time.ns = now_ns;
    row.window_ns = window_ns_;
    row.rank = RankOf(member);
    row.host.text = process.identity().host();
    if (!row.kernel.text.empty()) row.kernel.text = analysis::Demangle(row.kernel.text);
    batch_.Add(row);
  }
}

void JobRows::AddLoss(const std::string& what, const std::string& why, uint64_t count) {
  LossRow row;
  row.of = facts_.key;
  row.time.ns = static_cast<uint64_t>(absl::GetCurrentTimeNanos());
  row.what.text = what;
  row.why.text = why;
  row.count = count;
  batch_.Add(row);
}

void JobRows::WriteLosses(const model::JobModel& job) {
  std::map<std::string, uint64_t> losses;
  for (const auto& process : job.processes()) {
    for (const auto& [reason, records] : process->totals().losses)
      losses[analysis::LossName(reason)] += records;
    losses[analysis::LossName(v1::LOSS_BATCH_MISSING)] += process->totals().records_missing;
  }
  for (const auto& [reason, records] : losses) {
    uint64_t& before = losses_[reason];
    if (records > before) AddLoss("records", reason, records - before);
    before = records;
  }
}

void JobRows::WriteMinute(const model::JobModel& job, uint64_t now_ns) {
  window_ns_ = now_ns - (minute_ns_ == 0 ? facts_.begun_ns : minute_ns_);
  minute_ns_ = now_ns;
  for (const model::Member& member : MembersOf(job)) {
    WriteRank(job, member, now_ns);
    WriteLevels(member, now_ns);
    WriteCollectives(member, now_ns);
    WriteKernels(member, now_ns);
  }
  WriteLosses(job);
}

void JobRows::WriteJob(const model::JobModel& job, const std::vector<std::string>& hosts,
                       const std::string& state, uint64_t now_ns, bool over) {
  JobRow row;
  row.of = facts_.key;
  row.updated.ns = now_ns;
  row.hub.text = facts_.hub;
  row.run = facts_.run;
  row.state.text = state;
  row.begun.ns = facts_.begun_ns;
  if (over) row.ended = Time{now_ns};
  row.hosts = hosts;
  row.revision = revision_;
  std::set<std::string> gpus;
  std::optional<uint64_t> steps;
  double measured = 0;
  double step_ns = 0;
  for (const model::Member& member : MembersOf(job)) {
    const model::ProcessModel& process = *member.process;
    const v1::Versions& versions = process.versions();
    row.world_size =
        std::max(row.world_size, static_cast<uint32_t>(std::max(process.identity().world_size(), 0)));
    if (member.place == 0) ++row.ranks;
    row.gpu_seconds += static_cast<double>(analysis::DurationNs(process)) / kNsPerS;
    if (const auto device = BusiestOf(member); device.has_value()) {
      if (const v1::Device* info = Described(process, *device); info != nullptr) {
        gpus.insert(info->uuid());
        if (row.gpu_name.text.empty()) row.gpu_name.text = info->name();
      }
    }
    if (row.cuda_driver.text.empty())
      row.cuda_driver.text = analysis::CudaVersionName(versions.cuda_driver());
    if (row.nccl.text.empty()) row.nccl.text = analysis::NcclVersionName(versions.nccl());
    if (member.steps().count() > 0) steps = std::min(steps.value_or(UINT64_MAX), member.steps().count());
    measured += static_cast<double>(member.steps().statistics().total_ns.count());
    step_ns += static_cast<double>(member.steps().statistics().total_ns.total());
  }
  row.gpus = static_cast<uint32_t>(gpus.size());
  row.steps = steps.value_or(0);
  if (measured > 0) row.step_ns = step_ns / measured;
  const Verdict* worst = nullptr;
  for (const auto& [name, verdict] : verdicts_) {
    const bool is_worse = worst == nullptr || verdict.place < worst->place;
    if (verdict.open && is_worse) worst = &verdict;
  }
  if (worst != nullptr) {
    row.finding = worst->row.finding;
    row.statement = worst->row.statement;
  }
  batch_.Add(row);
  state_ = state;
}

void JobRows::WriteFinding(Verdict& verdict, uint64_t now_ns) {
  verdict.row.updated.ns = now_ns;
  batch_.Add(verdict.row);
}

void JobRows::Follow(const model::JobModel& job, const model::ProcessModel& process) {
  for (const model::Member& member : job.members()) {
    const std::deque<model::StepRecord>& steps = member.steps().steps();
    if (member.process != &process || steps.empty() || !member.IsReported()) continue;
    const auto next = next_.find(PlaceOf(member));
    if (next != next_.end() && steps.back().index < next->second + kFollowed) continue;
    if (KnowsRevision(job)) WriteStepsOf(job, member, false);
  }
  Commit(false);
}

void JobRows::Look(const model::JobModel& job, const std::vector<std::string>& hosts,
                   const std::string& state, uint64_t now_ns) {
  if (job.processes().empty()) return;
  WriteSteps(job, false);
  const bool minute = now_ns >= (minute_ns_ == 0 ? facts_.begun_ns : minute_ns_) + kMinuteNs;
  if (minute) WriteMinute(job, now_ns);
  const bool says = minute || state != state_;
  if (says) WriteJob(job, hosts, state, now_ns, false);
  Commit(says);
}

void JobRows::Judge(const analysis::Report& report, uint64_t now_ns) {
  TakeFindings(report, now_ns);
  Commit(true);
}

void JobRows::TakeFindings(const analysis::Report& report, uint64_t now_ns) {
  for (auto& [name, verdict] : verdicts_) ++verdict.missed;
  for (size_t place = 0; place < report.findings.size(); ++place) {
    const analysis::Finding& finding = report.findings[place];
    const std::string subject = absl::StrJoin(finding.about.ranks, ",");
    Verdict& verdict = verdicts_[absl::StrCat(finding.id, " ", subject)];
    verdict.seen = verdict.missed == 1 || verdict.seen == 0 ? verdict.seen + 1 : 1;
    verdict.missed = 0;
    verdict.place = place;
    FindingRow& row = verdict.row;
    const std::string statement = row.statement;
    row.of = facts_.key;
    row.finding.text = finding.id;
    row.subject = subject;
    row.severity.text = report::Word(finding.severity);
    row.statement = finding.statement;
    row.evidence = finding.evidence;
    row.advice = finding.advice;
    row.cost_ns_per_step = finding.cost_ns_per_step;
    row.first_step = finding.about.first_step;
    row.last_step = finding.about.last_step;
    row.ranks.assign(finding.about.ranks.begin(), finding.about.ranks.end());
    const analysis::FindingPlace place_of = analysis::PlaceOf(report, finding);
    row.hosts = place_of.hosts;
    row.gpu_uuids = place_of.gpu_uuids;
    row.lost_gpu_seconds = place_of.lost_gpu_seconds;
    if (verdict.open) {
      if (statement != row.statement) WriteFinding(verdict, now_ns);
      continue;
    }
    if (verdict.seen < kOpensAfter && finding.severity != analysis::Severity::kError) continue;
    verdict.open = true;
    row.opened.ns = now_ns;
    row.closed.reset();
    WriteFinding(verdict, now_ns);
  }
  for (auto& [name, verdict] : verdicts_) {
    if (!verdict.open || verdict.missed < kClosesAfter) continue;
    verdict.open = false;
    verdict.row.closed = Time{now_ns};
    WriteFinding(verdict, now_ns);
  }
}

void JobRows::End(const model::JobModel& job, const std::vector<std::string>& hosts, bool again,
                  const analysis::Report& report, uint64_t now_ns) {
  // Where only the last steps are still known, those that were written stay as they are.
  bool has_all = true;
  for (const model::Member& member : MembersOf(job))
    has_all = has_all &&
              (member.steps().steps().empty() || member.steps().count() == member.steps().steps().size());
  if (again && has_all) {
    ++revision_;
    next_.clear();
    revisions_ = 0;
    for (const model::Member& member : job.members()) revisions_ += member.steps().revisions();
  }
  if (!again || has_all) WriteSteps(job, true);
  WriteMinute(job, now_ns);
  // The report of the whole job is the last word.
  for (int i = 0; i < kOpensAfter; ++i) TakeFindings(report, now_ns);
  for (auto& [name, verdict] : verdicts_) {
    if (verdict.missed == 0) {
      verdict.row.at_end = true;
    } else if (verdict.open) {
      verdict.open = false;
      verdict.row.closed = Time{now_ns};
    } else {
      continue;
    }
    WriteFinding(verdict, now_ns);
  }
  WriteJob(job, hosts, "over", now_ns, true);
  Commit(true, /*over=*/true);
}

}  // namespace gpuprobe::clickhouse
