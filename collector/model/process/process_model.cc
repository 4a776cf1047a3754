#include "collector/model/process/process_model.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/model/process/host_witness.h"
#include "collector/model/steps/work_roles.h"
#include "collector/records/row_clock.h"
#include "proto/cupti_versions.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {

ProcessModel::ProcessModel(v1::Hello hello, ProcessEvents events)
    : events_(std::move(events)),
      hello_(std::move(hello)),
      delivery_(hello_, totals_, [this](bool launches) { steps_.NoteLoss(launches); }),
      collectives_(
          {.issued = [this](const CollectiveRecord& call) { Issued(call); },
           .finished = [this](uint32_t comm, uint64_t seq, uint64_t end_ns) { Finished(comm, seq, end_ns); },
           .settled = [this](const SettledPlan& plan) { Settled(plan); }}) {
  if (hello_.has_recording_steps()) steps_.RecordsSome();
  if (hello_.loaded_by() == v1::LOADED_BY_ATTACH) joiner_.BeginsLate();
}

void ProcessModel::Issued(const CollectiveRecord& call) {
  if (roll_up_ != nullptr) roll_up_->Issued(call);
  events_.collectives.issued(call);
}

void ProcessModel::Finished(uint32_t comm, uint64_t seq, uint64_t end_ns) {
  progress_.OnFinished(comm, seq, end_ns);
  if (roll_up_ != nullptr) roll_up_->Finished(comm, seq);
  events_.collectives.finished(comm, seq, end_ns);
}

void ProcessModel::Settled(SettledPlan plan) {
  if (!hello_.rolled_up()) {
    plan.device = PlaceOf(plan.comm);
    plan.clock_shift_ns = ClockShift(plan.batch);
  }
  if (roll_up_ != nullptr) roll_up_->Settled(plan);
  events_.collectives.settled(plan);
}

void ProcessModel::Traced(const TracedStepRecord& step) {
  if (roll_up_ != nullptr) roll_up_->Traced(step);
  events_.traced_step(step);
}

void ProcessModel::Traced(const TracedCallRecord& call) {
  if (roll_up_ != nullptr) roll_up_->Traced(call);
  if (const v1::Communicator* comm = FindCommunicator(call.comm); comm != nullptr)
    events_.traced_call(*comm, call);
}

void ProcessModel::Traced(const CallTimeRecord& time) {
  if (roll_up_ != nullptr) roll_up_->Traced(time);
  if (const v1::Communicator* comm = FindCommunicator(time.comm); comm != nullptr)
    events_.call_time(*comm, time);
}

void ProcessModel::KeepRollUp(uint64_t after) {
  roll_up_ = std::make_unique<RollUp>(hello_.identity().world_size());
  rolled_up_ = after;
  steps_.HandOn();
}

v1::Batch ProcessModel::TakeRollUp() {
  v1::Batch out;
  if (roll_up_ == nullptr) {
    out.set_sequence(last_sequence());
    return out;
  }
  std::vector<uint32_t> texts = progress_.open_ranges;
  texts.insert(texts.end(), {progress_.last_call.op, progress_.creating.made_by, progress_.refused.made_by,
                             progress_.blocked_in});
  const std::vector<RankStepRecord> steps = steps_.TakeCompleted();
  out = roll_up_->Take({.names = names_,
                        .collectives = collectives_,
                        .steps = steps,
                        .texts = texts,
                        .last_wait_end_ns = progress_.last_wait_end_ns});
  out.set_sequence(last_sequence());
  return out;
}

void ProcessModel::SetStepMarker(const StepMarker& marker) {
  steps_.SetMarker(marker);
  devices_.SetMarker(marker);
}

void ProcessModel::Rejoin(const v1::Hello& hello) {
  hello_ = hello;
  delivery_.OnRejoin();
  condition_.Rejoin();
}

absl::Status ProcessModel::Apply(const v1::Batch& batch) {
  const auto applied = events_.applied;  // the model may begin anew meanwhile, with its events
  absl::Status status = ApplyBatch(batch);
  applied();
  return status;
}

absl::Status ProcessModel::ApplyBatch(const v1::Batch& batch) {
  if (batch.restated()) return ApplyDefinitions(batch);
  if (hello_.rolled_up()) return ApplyRollUp(batch);
  delivery_.BeginBatch(batch);
  joiner_.BeginBatch(static_cast<uint32_t>(totals_.batches));
  if (absl::Status s = ApplyDefinitions(batch); !s.ok()) return s;
  if (batch.has_capture()) {
    captures_.On(batch.capture());
    const v1::CaptureClock clock = captures_.clock();
    if (clock == v1::CAPTURE_CLOCK_MARKER || clock == v1::CAPTURE_CLOCK_CALLS) steps_.RecordsSome();
  }
  clock_.BeginBatch(batch, hello_.clock(), progress_.last_device_end_ns);
  if (absl::Status s = ApplyHostRecords(batch); !s.ok()) return s;
  clock_.BeginDeviceRecords(batch);
  if (absl::Status s = ApplyDeviceRecords(batch); !s.ok()) return s;
  EndBatch(batch);
  if (roll_up_ != nullptr && last_sequence() <= rolled_up_) {
    roll_up_->ForgetRows();
    steps_.TakeCompleted();
  }
  return absl::OkStatus();
}

absl::Status ProcessModel::ApplyRollUp(const v1::Batch& batch) {
  if (absl::Status s = ApplyDefinitions(batch); !s.ok()) return s;
  absl::Status status =
      ForEachRow<RankStepRecord>(batch, [this](const RankStepRecord& r) { steps_.AddCompleted(r); });
  if (!status.ok()) return status;
  status = ForEachRow<CollectiveRecord>(batch, [this](const CollectiveRecord& r) { Issued(r); });
  if (!status.ok()) return status;
  status = ForEachRow<FinishedCallRecord>(
      batch, [this](const FinishedCallRecord& r) { Finished(r.comm, r.seq, 0); });
  if (!status.ok()) return status;
  if (status = ApplyArrivals(batch); !status.ok()) return status;
  if (status = ApplyTraceOfRollUp(batch); !status.ok()) return status;
  delivery_.OnRollUp(batch);
  // A copy: the model may begin anew meanwhile, with its events.
  const auto on_state = events_.state;
  if (batch.has_process_state()) on_state(batch.process_state());
  return absl::OkStatus();
}

absl::Status ProcessModel::ApplyTraceOfRollUp(const v1::Batch& batch) {
  absl::Status status = ForEachRow<TracedStepRecord>(batch, [this](const TracedStepRecord& r) { Traced(r); });
  if (!status.ok()) return status;
  status = ForEachRow<TracedCallRecord>(batch, [this](const TracedCallRecord& r) { Traced(r); });
  if (!status.ok()) return status;
  return ForEachRow<CallTimeRecord>(batch, [this](const CallTimeRecord& r) { Traced(r); });
}

void ProcessModel::BeginAnew() {
  v1::Hello hello = hello_;
  ProcessEvents events = std::move(events_);
  CollectiveTracker::Defined defined = collectives_.defined();
  std::destroy_at(this);
  std::construct_at(this, std::move(hello), std::move(events));
  collectives_.Define(std::move(defined));
}

absl::Status ProcessModel::ApplyArrivals(const v1::Batch& batch) {
  std::vector<TransferEnd> ends;
  absl::Status status = ForEachRow<ArrivalEndRecord>(batch, [&](const ArrivalEndRecord& r) {
    ends.push_back({.op = r.op, .peer = r.peer, .ordinal = r.ordinal});
  });
  if (!status.ok()) return status;
  absl::Status bad;
  std::span<const TransferEnd> left = ends;
  status = ForEachRow<ArrivalRecord>(batch, [&](const ArrivalRecord& r) {
    if (!bad.ok()) return;
    if (r.ends > left.size() || !steps_.Reach(r.place)) {
      bad = absl::InvalidArgumentError("a plan of sends and receives, or of a GPU, that are not there");
      return;
    }
    bad = collectives_.AddSettled(r, left.first(r.ends));
    left = left.subspan(r.ends);
  });
  return status.ok() ? bad : status;
}

void ProcessModel::EndBatch(const v1::Batch& batch) {
  joiner_.EndBatch([this](Operation& operation) { OnOperation(operation); });
  collectives_.EndBatch();
  // Everything from before the previous batch was sealed has arrived by now.
  const bool has_clock = batch.clock().realtime_ns() != 0;
  memory_.ApplyUntil(has_clock ? totals_.last_clock_ns : UINT64_MAX);
  EndSteps();
  memory_.ResolveRanges(ranges_);
  ranges_.Advance(joiner_.SettledUntilNs());
  progress_.OnBatch(batch, clock_.line(), totals_.self.records_outside_window());
  delivery_.EndBatch(batch, hello_.instance() != 0);
  const ProcessClock::Forward forward = clock_.EndBatch(batch);
  totals_.last_clock_ns = clock_.last_ns();
  totals_.clock_step_ns = clock_.largest_step_ns();
  if (forward.by_ns != 0) steps_.NoteClockStep(forward.by_ns, forward.from_ns, forward.to_ns);
}

absl::Status ProcessModel::ApplyDefinitions(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) {
    if (absl::Status s = names_.On(def, batch.restated() || hello_.rolled_up()); !s.ok()) return s;
  }
  for (const v1::ThreadDef& def : batch.threads()) {
    if (absl::Status s = names_.On(def, RolesOfThread(def.name())); !s.ok()) return s;
  }
  for (const v1::KernelSite& def : batch.kernel_sites()) {
    if (absl::Status s = devices_.On(def, steps_.first(), batch.restated()); !s.ok()) return s;
    steps_.NoteContext(def.context(), def.device());
  }
  for (const v1::HostFrame& def : batch.host_frames()) frames_.On(def, names_);
  for (const v1::Device& device : batch.devices()) devices_.On(device);
  if (batch.has_versions()) versions_ = batch.versions();
  if (batch.has_nccl_identity()) AdoptNcclIdentity(batch.nccl_identity(), *hello_.mutable_identity());
  for (const v1::Communicator& comm : batch.communicators()) events_.communicator(names_.On(comm));
  if (hello_.rolled_up()) {
    for (const v1::PlanSeries& series : batch.plan_series()) collectives_.Define(series);
  }
  if (roll_up_ != nullptr) roll_up_->Define(batch);
  return absl::OkStatus();
}

template <typename Record>
uint32_t ProcessModel::StreamOf(const Record& r) const {
  if constexpr (requires { r.stream; }) return r.stream;
  if constexpr (requires { r.site; }) return devices_.KnowsSite(r.site) ? devices_.StreamOf(r.site) : 0;
  return 0;
}

// The one place where times of records become times of the model, and names its names.
template <typename Record, typename Visitor>
absl::Status ProcessModel::Read(const v1::Batch& batch, const Visitor& visit) {
  return ForEachRow<Record>(batch, [&](Record r) {
    if (clock_.line().moved()) [[unlikely]]
      MoveToLine(clock_.line(), StreamOf(r), r);
    MapTexts(r, [this](uint32_t id) { return names_.Canonical(id); });
    visit(r);
  });
}

absl::Status ProcessModel::ApplyHostRecords(const v1::Batch& batch) {
  absl::Status status = Read<LaunchRecord>(batch, [this](const LaunchRecord& r) { On(r); });
  if (!status.ok()) return status;
  status = Read<PlanRecord>(batch, [this](const PlanRecord& r) { On(r); });
  if (!status.ok()) return status;
  // Before the ranges: the one in which it happened may close in the same batch.
  if (status = ApplyMemoryRecords(batch); !status.ok()) return status;
  if (status = ApplyAllocatorRecords(batch); !status.ok()) return status;
  status = Read<RangeRecord>(batch, [this](const RangeRecord& r) { On(r); });
  if (!status.ok()) return status;
  status = Read<CollectiveRecord>(batch, [this](const CollectiveRecord& r) { On(r); });
  if (!status.ok()) return status;
  status = Read<RecordedStepRecord>(batch, [this](const RecordedStepRecord& r) {
    if (records_on_demand()) captures_.On(r);
    steps_.AddRecorded(r);
  });
  if (!status.ok()) return status;
  status = Read<OverheadRecord>(batch, [this](const OverheadRecord& r) { On(r); });
  if (!status.ok()) return status;
  status = Read<SyncRecord>(batch, [this](const SyncRecord& r) { On(r); });
  if (!status.ok()) return status;
  if (status = ApplyTrace(batch); !status.ok()) return status;
  return ApplyHostSamples(batch);
}

absl::Status ProcessModel::ApplyTrace(const v1::Batch& batch) {
  absl::Status status = Read<TracedStepRecord>(batch, [this](const TracedStepRecord& r) {
    ++totals_.records;
    Traced(r);
  });
  if (!status.ok()) return status;
  status = Read<TracedCallRecord>(batch, [this](const TracedCallRecord& r) {
    ++totals_.records;
    progress_.On(r);
    Traced(r);
  });
  if (!status.ok()) return status;
  return Read<CallTimeRecord>(batch, [this](const CallTimeRecord& r) {
    ++totals_.records;
    Traced(r);
  });
}

absl::Status ProcessModel::ApplyHostSamples(const v1::Batch& batch) {
  // Not counted among the program's records: which calls are slow enough, and how many samples there are,
  // chance decides.
  absl::Status status = Read<DriverCallRecord>(batch, [this](const DriverCallRecord& r) {
    driver_calls_.On(r);
    if (r.start_ns < r.end_ns) steps_.AddDriverCall(r);
  });
  if (!status.ok()) return status;
  status = Read<HostSampleRecord>(batch, [this](const HostSampleRecord& r) {
    totals_.host_samples += r.time_ns != totals_.last_host_sample_ns ? 1 : 0;
    totals_.last_host_sample_ns = r.time_ns;
    HostSampleRecord seen = r;
    if (String(r.call) == "take_gil") seen.call = kTakesLock;
    steps_.AddSample(seen, frames_);
  });
  steps_.EndSamples(frames_);
  return status;
}

absl::Status ProcessModel::ApplyMemoryRecords(const v1::Batch& batch) {
  absl::Status status = Read<AllocationRecord>(batch, [this](const AllocationRecord& r) {
    ++totals_.records;
    OnMemory(r, r.time_ns, r.time_ns);
    if (r.duration_ns > 0 && r.duration_ns < r.time_ns)
      steps_.AddMemoryCall(r.device, r.time_ns - r.duration_ns, r.time_ns);
  });
  if (!status.ok()) return status;
  status = Read<SmallAllocationsRecord>(
      batch, [this](const SmallAllocationsRecord& r) { OnMemory(r, r.highest_ns, r.end_ns); });
  if (!status.ok()) return status;
  return Read<PoolLevelRecord>(batch, [this](const PoolLevelRecord& r) { memory_.On(r); });
}

absl::Status ProcessModel::ApplyAllocatorRecords(const v1::Batch& batch) {
  const auto on = [this](const auto& r) {
    ++totals_.records;
    OnMemory(r, r.time_ns, r.time_ns);
  };
  absl::Status status = Read<AllocatorLevelRecord>(batch, on);
  if (!status.ok()) return status;
  status = Read<TensorRecord>(batch, on);
  if (!status.ok()) return status;
  return Read<AllocatorRefusalRecord>(batch, on);
}

absl::Status ProcessModel::ApplyDeviceRecords(const v1::Batch& batch) {
  absl::Status bad_site;
  absl::Status status = Read<KernelRecord>(batch, [&](const KernelRecord& r) {
    ++totals_.records;
    if (!devices_.KnowsSite(r.site)) [[unlikely]] {
      bad_site = absl::InvalidArgumentError(absl::StrCat("kernel site ", r.site, " was not defined"));
      return;
    }
    if (totals_.Observe(r.start_ns, r.end_ns)) On(r);
  });
  if (!status.ok()) return status;
  if (!bad_site.ok()) return bad_site;
  const auto on = [this](const auto& r) {
    ++totals_.records;
    if (totals_.Observe(r.start_ns, r.end_ns)) On(r);
  };
  status = Read<CopyRecord>(batch, on);
  if (!status.ok()) return status;
  status = Read<GraphRunRecord>(batch, on);
  if (!status.ok()) return status;
  return Read<MemsetRecord>(batch, on);
}

void ProcessModel::On(const LaunchRecord& r) {
  ++totals_.records;
  ++totals_.launches;
  progress_.On(r);
  joiner_.AddLaunch(r);
  if (r.graph != 0) collectives_.AddGraphLaunch(r);
}

void ProcessModel::On(const PlanRecord& r) {
  joiner_.AddPlan(r);
  if (r.graph != 0 && r.graph_node != 0) collectives_.AddToGraph(r);
}

template <typename Record>
void ProcessModel::OnMemory(const Record& r, uint64_t start_ns, uint64_t end_ns) {
  totals_.Observe(start_ns, end_ns);
  memory_.On(r);
}

void ProcessModel::On(const RangeRecord& r) {
  ++totals_.records;
  if (r.unclosed) ++totals_.ranges_unclosed;
  if (r.kind == v1::RANGE_KIND_MARK) ++totals_.marks;
  totals_.Observe(r.start_ns, r.end_ns);
  memory_.On(r);
  ranges_.Close(r, names_.IsMainThread(r.thread));
  if (r.kind != v1::RANGE_KIND_MARK && r.id != 0 && r.start_ns <= r.end_ns && !r.unclosed) {
    const bool named = names_.Knows(r.name) && !IsLibraryDomain(String(r.domain));
    steps_.AddRange(r.id, r.parent, r.start_ns, r.end_ns, named ? r.name : 0, named ? String(r.name) : "");
  }
}

void ProcessModel::On(const CollectiveRecord& r) {
  ++totals_.records;
  totals_.Observe(r.issue_ns, r.return_ns);
  progress_.On(r);
  const bool point_to_point = names_.IsPointToPoint(r.op);
  CollectiveRecord call = r;
  if (point_to_point && nccl::IsOneSided(String(r.op))) call.peer = -1;  // which does nothing for it
  collectives_.AddCall(call, point_to_point);
}

// CUPTI's and the driver's work, not the program's: neither counted among its records, nor part of the time
// that the run takes.
void ProcessModel::On(const OverheadRecord& r) {
  if (r.end_ns < r.start_ns) return;
  const auto what = static_cast<size_t>(r.what);
  OverheadTotals& totals = totals_.overheads[what < totals_.overheads.size() ? what : 0];
  ++totals.count;
  totals.duration_ns += r.end_ns - r.start_ns;
}

void ProcessModel::On(const SyncRecord& r) {
  ++totals_.records;
  if (!totals_.Observe(r.start_ns, r.end_ns)) return;
  const auto what = static_cast<size_t>(r.what);
  SyncTotals& totals = totals_.syncs[what < totals_.syncs.size() ? what : 0];
  ++totals.count;
  totals.duration_ns += r.end_ns - r.start_ns;
  if (r.what != v1::SYNC_KIND_STREAM_WAIT_EVENT) steps_.AddBlockedInContext(r.context, r.start_ns, r.end_ns);
}

template <typename Record>
void ProcessModel::Join(const Record& r) {
  progress_.last_device_end_ns = std::max(progress_.last_device_end_ns, r.end_ns);
  joiner_.Add(r.correlation, [&] { return devices_.On(r); });
}

void ProcessModel::On(const KernelRecord& r) {
  const uint32_t op = devices_.CollectiveOpOf(r);
  if (op != 0 || (r.graph_node != 0 && NamesAreUncertain())) joiner_.AddCollectiveKernel(r, op);
  Join(r);
}

void ProcessModel::On(const CopyRecord& r) {
  if (r.graph_node != 0) joiner_.AddCopyInGraph(r);
  Join(r);
}

void ProcessModel::On(const GraphRunRecord& r) {
  devices_.On(r);
  collectives_.EndGraphLaunch(r.correlation);
}

void ProcessModel::On(const MemsetRecord& r) { Join(r); }

void ProcessModel::OnLaunchKnown(Operation& operation, uint64_t plan, uint32_t owner) {
  // For an updated graph, the mapping from nodes to calls is only approximate: the name decides, if it can be
  // trusted.
  const bool by_name = operation.graph_node != 0 && operation.op == 0 && !NamesAreUncertain();
  devices_.Settle(operation, by_name ? 0 : plan, owner, steps_.first());
}

bool ProcessModel::NamesAreUncertain() const {
  return (versions_.cupti_precautions() & cupti::kNamesUncertain) != 0;
}

void ProcessModel::OnOperation(Operation& operation) {
  joiner_.DescribeCollective(operation);  // its calls may have come after its kernel
  // Nobody may have counted a loss: a process that was killed sends what it has.
  if (operation.kind == OperationKind::kUnseen && joiner_.totals().without_record > 0) steps_.NoteLoss(false);
  devices_.OnInOrder(operation);
  steps_.Add(operation);
}

void ProcessModel::EndSteps() {
  steps_.EndBatch();
  for (const HostPhases& step : steps_.TakeHostPhases()) memory_.OnStep(step);
}

void ProcessModel::ApplyBye(const v1::Bye& bye) {
  delivery_.OnBye(bye, hello_.instance() != 0);
  if (hello_.rolled_up()) return;
  // Nothing more will arrive for what waits, and other ranks may run on for long.
  joiner_.Flush([this](Operation& operation) { OnOperation(operation); });
}

void ProcessModel::ApplyObservation(const v1::ProcessObservation& observation) {
  condition_.Apply(observation, clock_.Now(observation.clock().realtime_ns()));
}

void ProcessModel::ApplyDevice(const v1::DeviceObservation& observation) {
  constexpr size_t kMostDevices = 64;
  if (health_.size() >= kMostDevices && !health_.contains(observation.device())) return;
  health_[observation.device()].Apply(observation, clock_.Now(observation.clock().realtime_ns()));
}

namespace {

// Records that were made and will not come. What had not finished when it was asked for still may.
bool LostSome(const ProcessTotals& totals) {
  return totals.batches_missing > 0 ||
         std::any_of(totals.losses.begin(), totals.losses.end(), [](const auto& loss) {
           return loss.first != v1::LOSS_UNFINISHED_AT_FLUSH && loss.second > 0;
         });
}

}  // namespace

void ProcessModel::Finish(bool goes_on) {
  // Whoever made the roll-up settles what waits.
  if (hello_.rolled_up()) return steps_.FinishCompleted();
  const auto hand_on = [this](Operation& operation) { OnOperation(operation); };
  bool cut_off = false;
  if (delivery_.said_bye()) {
    joiner_.Finish(hand_on);
  } else {
    cut_off = joiner_.FinishSoFar(goes_on, LostSome(totals_), hand_on);
  }
  steps_.Finish(cut_off);
  memory_.Finish();
  EndSteps();
  memory_.ResolveRanges(ranges_);
  ranges_.Finish();
  collectives_.Finish(goes_on);
}

}  // namespace gpuprobe::model
