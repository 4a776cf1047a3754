#include "collector/model/process_model.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/model/collective_kernels.h"
#include "collector/model/continuous_clock.h"
#include "collector/model/row_clock.h"
#include "collector/model/work_roles.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {

namespace {

// Ids are dense by construction; a gap can only come from lost batches. A larger jump is not from our
// injector, and following it would let a peer make us allocate at will.
constexpr size_t kMaxIdJump = 65536;
constexpr size_t kMaxId = size_t{1} << 22;
// Less is what two readings of the clocks differ by anyway.
constexpr int64_t kClockStepNs = 200'000;
constexpr size_t kMaxClockSteps = 1024;

template <typename T>
absl::Status MakeRoom(std::vector<T>& dense, uint32_t id, const char* what) {
  if (id < dense.size()) return absl::OkStatus();
  if (id >= kMaxId || id > dense.size() + kMaxIdJump) {
    return absl::InvalidArgumentError(absl::StrCat(what, " id ", id, " is out of range"));
  }
  dense.resize(std::max<size_t>(size_t{id} + 1, std::min(dense.size() * 2, kMaxId)));
  return absl::OkStatus();
}

// Mixes a value into a hash (splitmix64's finalizer).
uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = hash * 0xff51afd7ed558ccd + value + 0x9e3779b97f4a7c15;  // 1 with 2 is not 2 with 1, nor 0 with 3
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

// Whether launches may be among the records lost for this reason; device records are missed by their
// launches.
bool MayBeLaunches(v1::LossReason reason) {
  return reason != v1::LOSS_BUFFER_POOL_EMPTY && reason != v1::LOSS_CUPTI_DROPPED &&
         reason != v1::LOSS_INVALID_TIMESTAMP && reason != v1::LOSS_FOREIGN_BUFFER &&
         reason != v1::LOSS_UNFINISHED_AT_FLUSH;
}

void CountPageable(const CopyRecord& copy, uint64_t duration_ns, PageableTotals& totals) {
  ++totals.count;
  totals.bytes += copy.bytes;
  totals.duration_ns += duration_ns;
}

}  // namespace

ProcessModel::ProcessModel(v1::Hello hello, ProcessEvents events)
    : events_(std::move(events)),
      hello_(std::move(hello)),
      line_(std::make_unique<ContinuousClock>()),
      collectives_(
          {.issued = events_.collectives.issued,
           .finished = [this](uint32_t comm, uint64_t seq, uint64_t end_ns) { Finished(comm, seq, end_ns); },
           .settled = events_.collectives.settled}) {
  if (hello_.has_recording_steps()) steps_.RecordsSome();
  if (hello_.first_sequence() > 1) last_sequence_ = hello_.first_sequence() - 1;
  records_sent_ = totals_.records_elsewhere = hello_.records_before();
}

ProcessModel::~ProcessModel() = default;

void ProcessModel::Finished(uint32_t comm, uint64_t seq, uint64_t end_ns) {
  HostProgress::LastCall& last = progress_.last_call;
  if (last.comm == comm && last.seq == seq) last.done_ns = end_ns;
  events_.collectives.finished(comm, seq, end_ns);
}

void ProcessModel::SetStepMarker(const StepMarker& marker) {
  marker_ = marker;
  steps_.SetMarker(marker);
}

void ProcessModel::Rejoin(const v1::Hello& hello) {
  hello_ = hello;
  end_state_ = EndState::kConnected;
  condition_.Rejoin();
}

const std::string& ProcessModel::String(uint32_t id) const {
  return id < strings_.size() ? strings_[id] : OperationOfId(id);
}

const v1::Communicator* ProcessModel::FindCommunicator(uint32_t id) const {
  const auto found = communicators_.find(id);
  return found == communicators_.end() ? nullptr : &found->second;
}

DeviceTotals& ProcessModel::DeviceFor(uint32_t ordinal) {
  const auto [it, added] = devices_.try_emplace(ordinal);
  if (added) it->second.info.set_ordinal(ordinal);
  return it->second;
}

absl::Status ProcessModel::Apply(const v1::Batch& batch) {
  if (batch.restated()) return ApplyDefinitions(batch);
  if (batch.sequence() > last_sequence_ + 1) totals_.batches_missing += batch.sequence() - last_sequence_ - 1;
  last_sequence_ = std::max(last_sequence_, batch.sequence());
  ++totals_.batches;
  joiner_.BeginBatch(static_cast<uint32_t>(totals_.batches));
  if (absl::Status s = ApplyDefinitions(batch); !s.ok()) return s;
  const int64_t clock_step_ns = ClockStepOf(batch);
  const bool set_back = clock_step_ns <= -kClockStepNs && clock_step_ns != INT64_MIN;
  if (set_back) {
    line_->SetBack(batch, static_cast<uint64_t>(-clock_step_ns), totals_.last_clock_ns,
                   progress_.last_device_end_ns);
  }
  if (line_->moved()) line_->BeginBatch(batch, set_back);
  if (absl::Status s = ApplyHostRecords(batch); !s.ok()) return s;
  if (clock_step_ns >= kClockStepNs)
    clock_steps_.Note(static_cast<uint64_t>(clock_step_ns), totals_.last_clock_ns,
                      line_->Now(batch.clock().realtime_ns()));
  if (absl::Status s = ApplyDeviceRecords(batch); !s.ok()) return s;
  joiner_.EndBatch([this](Operation& operation) { OnOperation(operation); });
  collectives_.EndBatch();
  // Everything from before the previous batch was sealed has arrived by now.
  const bool has_clock = batch.clock().realtime_ns() != 0;
  ledger_.ApplyUntil(has_clock ? totals_.last_clock_ns : UINT64_MAX);
  EndSteps();
  ResolveHighWaterRanges();
  if (range_paths_.full()) {
    range_paths_.Forget([this](const std::function<void(uint64_t)>& need) {
      ledger_.ForEachRange(need);
      for (const auto& [device, totals] : allocator_) need(totals.last_refusal.range);
    });
  }
  ApplyHostState(batch);
  ApplyClockAndLosses(batch);
  return absl::OkStatus();
}

absl::Status ProcessModel::ApplyDefinitions(const v1::Batch& batch) {
  for (const v1::StringDef& def : batch.strings()) {
    if (absl::Status s = MakeRoom(strings_, def.id(), "string"); !s.ok()) return s;
    strings_[def.id()] = def.value();
    if (nccl::IsTransfer(def.value()) || nccl::IsOneSided(def.value())) {
      if (point_to_point_.size() <= def.id()) point_to_point_.resize(def.id() + 1);
      point_to_point_[def.id()] = true;
    }
  }
  for (const v1::ThreadDef& def : batch.threads()) {
    if (absl::Status s = MakeRoom(main_thread_, def.id(), "thread"); !s.ok()) return s;
    main_thread_[def.id()] = def.main();
    if (thread_roles_.size() < main_thread_.size()) thread_roles_.resize(main_thread_.size());
    thread_roles_[def.id()] = RolesOfThread(def.name());
  }
  for (const v1::KernelSite& def : batch.kernel_sites()) {
    if (absl::Status s = MakeRoom(sites_, def.id(), "kernel site"); !s.ok()) return s;
    KernelTotals*& kernel = kernel_by_name_[def.name()];
    if (kernel == nullptr) {
      kernels_.push_back(std::make_unique<KernelTotals>());
      kernel = kernels_.back().get();
      kernel->name = def.name();
    }
    const uint64_t coarse = Mix(static_cast<uint64_t>(OperationKind::kKernel), def.name());
    uint64_t fine = coarse;
    for (const uint32_t size :
         {def.grid_x(), def.grid_y(), def.grid_z(), def.block_x(), def.block_y(), def.block_z()})
      fine = Mix(fine, size);
    const StepTracker::Token token = steps_.TokenOf(coarse, fine);
    kernel->token = token.coarse;
    sites_[def.id()] = {.kernel = kernel,
                        .device = &DeviceFor(def.device()),
                        .collective_op = OperationIdOfKernel(String(def.name())),
                        .token = token,
                        .roles = RolesOf(String(def.name())),
                        .stream = def.stream(),
                        .calls = sites_[def.id()].calls,
                        .geometry = {.grid = {def.grid_x(), def.grid_y(), def.grid_z()},
                                     .block = {def.block_x(), def.block_y(), def.block_z()}}};
  }
  for (const v1::Device& device : batch.devices()) DeviceFor(device.ordinal()).info = device;
  if (batch.has_versions()) versions_ = batch.versions();
  if (batch.has_nccl_identity()) AdoptNcclIdentity(batch.nccl_identity(), *hello_.mutable_identity());
  for (const v1::Communicator& comm : batch.communicators()) {
    v1::Communicator& known = communicators_[comm.id()];
    MergeCommunicator(comm, known);
    events_.communicator(known);
  }
  return absl::OkStatus();
}

template <typename Record>
uint32_t ProcessModel::StreamOf(const Record& r) const {
  if constexpr (requires { r.stream; }) return r.stream;
  if constexpr (requires { r.site; }) return r.site < sites_.size() ? sites_[r.site].stream : 0;
  return 0;
}

// The one place where times of records become times of the model.
template <typename Record, typename Visitor>
absl::Status ProcessModel::Read(const v1::Batch& batch, const Visitor& visit) {
  return ForEachRow<Record>(batch, [&](Record r) {
    if (line_->moved()) [[unlikely]]
      MoveToLine(*line_, StreamOf(r), r);
    visit(r);
  });
}

absl::Status ProcessModel::ApplyHostRecords(const v1::Batch& batch) {
  absl::Status status = Read<LaunchRecord>(batch, [this](const LaunchRecord& r) {
    ++totals_.records;
    ++totals_.launches;
    progress_.last_launch_ns = std::max(progress_.last_launch_ns, r.time_ns);
    joiner_.AddLaunch(r);
    if (r.graph != 0) collectives_.AddGraphLaunch(r);
  });
  if (!status.ok()) return status;
  status = Read<PlanRecord>(batch, [this](const PlanRecord& r) {
    joiner_.AddPlan(r);
    if (r.graph != 0 && r.graph_node != 0) collectives_.AddToGraph(r);
  });
  if (!status.ok()) return status;
  // Before the ranges: the one in which it happened may close in the same batch.
  status = Read<AllocationRecord>(batch, [this](const AllocationRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    range_paths_.Watch(r.range);
    ledger_.Add(r);
  });
  if (!status.ok()) return status;
  status = Read<SmallAllocationsRecord>(batch, [this](const SmallAllocationsRecord& r) {
    Observe(r.highest_ns, r.end_ns);
    range_paths_.Watch(r.range);
    ledger_.AddSmall(r);
  });
  if (!status.ok()) return status;
  status = Read<PoolLevelRecord>(batch, [this](const PoolLevelRecord& r) { ledger_.AddPoolLevel(r); });
  if (!status.ok()) return status;
  if (status = ApplyAllocatorRecords(batch); !status.ok()) return status;
  status = Read<RangeRecord>(batch, [this](const RangeRecord& r) {
    ++totals_.records;
    if (r.unclosed) ++totals_.ranges_unclosed;
    if (r.kind == v1::RANGE_KIND_MARK) ++totals_.marks;
    Observe(r.start_ns, r.end_ns);
    range_paths_.Close(r);
    ranges_.Close(r, r.thread < main_thread_.size() && main_thread_[r.thread]);
    if (r.kind != v1::RANGE_KIND_MARK && r.id != 0 && r.start_ns <= r.end_ns && !r.unclosed) {
      const bool named = r.name < strings_.size() && !IsLibraryDomain(String(r.domain));
      steps_.AddRange(r.id, r.parent, r.start_ns, r.end_ns, named ? r.name : 0, named ? String(r.name) : "");
    }
  });
  if (!status.ok()) return status;
  status = Read<CollectiveRecord>(batch, [this](const CollectiveRecord& r) {
    ++totals_.records;
    Observe(r.issue_ns, r.return_ns);
    progress_.last_call = {.issue_ns = r.issue_ns,
                           .return_ns = r.return_ns,
                           .op = r.op,
                           .comm = r.comm,
                           .seq = r.seq,
                           .plan = r.plan,
                           .done_ns = 0};
    const bool point_to_point = r.op < point_to_point_.size() && point_to_point_[r.op];
    CollectiveRecord call = r;
    if (point_to_point && nccl::IsOneSided(String(r.op))) call.peer = -1;  // which does nothing for it
    collectives_.AddCall(call, point_to_point);
  });
  if (!status.ok()) return status;
  status = Read<RecordedStepRecord>(batch, [this](const RecordedStepRecord& r) { steps_.AddRecorded(r); });
  if (!status.ok()) return status;
  // Not among the program's records: neither counted, nor part of the time that the run takes.
  status = Read<OverheadRecord>(batch, [this](const OverheadRecord& r) {
    if (r.end_ns < r.start_ns) return;
    const auto what = static_cast<size_t>(r.what);
    OverheadTotals& totals = totals_.overheads[what < totals_.overheads.size() ? what : 0];
    ++totals.count;
    totals.duration_ns += r.end_ns - r.start_ns;
  });
  if (!status.ok()) return status;
  return Read<SyncRecord>(batch, [this](const SyncRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    const auto what = static_cast<size_t>(r.what);
    SyncTotals& totals = totals_.syncs[what < totals_.syncs.size() ? what : 0];
    ++totals.count;
    totals.duration_ns += r.end_ns - r.start_ns;
    if (r.what != v1::SYNC_KIND_STREAM_WAIT_EVENT) steps_.AddBlocked(r.start_ns, r.end_ns);
  });
}

absl::Status ProcessModel::ApplyAllocatorRecords(const v1::Batch& batch) {
  absl::Status status = Read<AllocatorLevelRecord>(batch, [this](const AllocatorLevelRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    AllocatorTotals& totals = allocator_[r.device];
    totals.allocated_bytes = r.allocated_bytes;
    totals.allocated.Add(r.time_ns, r.allocated_bytes);
    totals.peaks.Add(r.time_ns, r.allocated_bytes);
    totals.reserved_bytes = r.reserved_bytes;
    totals.peak_allocated_bytes = std::max(totals.peak_allocated_bytes, r.peak_allocated_bytes);
    totals.peak_reserved_bytes = std::max(totals.peak_reserved_bytes, r.peak_reserved_bytes);
  });
  if (!status.ok()) return status;
  status = Read<TensorRecord>(batch, [this](const TensorRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    AllocatorTotals& totals = allocator_[r.device];
    ++totals.tensors_told;
    totals.tensors.Add(r.time_ns, r.address, Magnitude(r.change_bytes), r.change_bytes < 0);
  });
  if (!status.ok()) return status;
  return Read<AllocatorRefusalRecord>(batch, [this](const AllocatorRefusalRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    range_paths_.Watch(r.range);
    AllocatorTotals& totals = allocator_[r.device];
    ++totals.refusals;
    totals.last_refusal = r;
  });
}

absl::Status ProcessModel::ApplyDeviceRecords(const v1::Batch& batch) {
  absl::Status bad_site;
  absl::Status status = Read<KernelRecord>(batch, [&](const KernelRecord& r) {
    ++totals_.records;
    if (r.site >= sites_.size() || sites_[r.site].kernel == nullptr) [[unlikely]] {
      bad_site = absl::InvalidArgumentError(absl::StrCat("kernel site ", r.site, " was not defined"));
      return;
    }
    Site& site = sites_[r.site];
    if (!Observe(r.start_ns, r.end_ns)) return;
    ++totals_.kernels;
    ++site.calls;
    if (r.graph_node != 0) ++totals_.graph_kernels;
    if (site.collective_op != 0) joiner_.AddCollectiveKernel(r, site.collective_op);
    const uint64_t duration_ns = clock_steps_.Length(r.start_ns, r.end_ns);
    if (duration_ns < kShortKernelNs) {
      ++totals_.short_kernels;
      totals_.short_kernel_ns += duration_ns;
    }
    site.kernel->time_ns.Add(duration_ns);
    ++site.device->kernels;
    Operation operation{
        .correlation = r.correlation,
        .graph_node = r.graph_node,
        .start_ns = r.start_ns,
        .end_ns = r.end_ns,
        .op = site.collective_op,
        .site = r.site,
        .kind = site.collective_op != 0 ? OperationKind::kCollectiveKernel : OperationKind::kKernel};
    Join(operation);
  });
  if (!status.ok()) return status;
  if (!bad_site.ok()) return bad_site;
  status = Read<CopyRecord>(batch, [this](const CopyRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    const auto direction = static_cast<size_t>(r.direction);
    CopyTotals& totals = totals_.copies[direction < totals_.copies.size() ? direction : 0];
    ++totals.count;
    totals.bytes += r.bytes;
    const uint64_t duration_ns = clock_steps_.Length(r.start_ns, r.end_ns);
    totals.duration_ns += duration_ns;
    totals.busy.Add(r.start_ns, r.end_ns);
    if (r.graph_node != 0) joiner_.AddCopyInGraph(r);
    if (r.src_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_h2d);
    if (r.dst_memory == v1::MEMORY_KIND_PAGEABLE) CountPageable(r, duration_ns, totals_.pageable_d2h);
    Operation operation{
        .correlation = r.correlation,
        .graph_node = r.graph_node,
        .start_ns = r.start_ns,
        .end_ns = r.end_ns,
        .bytes = r.bytes,
        .kind = OperationKind::kCopy,
        .direction = static_cast<uint8_t>(r.direction),
        .pageable = r.src_memory == v1::MEMORY_KIND_PAGEABLE || r.dst_memory == v1::MEMORY_KIND_PAGEABLE};
    Join(operation);
  });
  if (!status.ok()) return status;
  // A graph as a whole: the device was busy, but the kind of work is not known.
  status = Read<GraphRunRecord>(batch, [this](const GraphRunRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    DeviceFor(r.device).busy.Add(r.start_ns, r.end_ns);
    collectives_.EndGraphLaunch(r.correlation);
  });
  if (!status.ok()) return status;
  return Read<MemsetRecord>(batch, [this](const MemsetRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    ++totals_.memsets;
    totals_.memset_bytes += r.bytes;
    totals_.memset_ns += r.end_ns - r.start_ns;
    Operation operation{.correlation = r.correlation,
                        .graph_node = r.graph_node,
                        .start_ns = r.start_ns,
                        .end_ns = r.end_ns,
                        .bytes = r.bytes,
                        .kind = OperationKind::kMemset};
    Join(operation);
  });
}

void ProcessModel::Join(Operation& operation) {
  progress_.last_device_end_ns = std::max(progress_.last_device_end_ns, operation.end_ns);
  joiner_.Add(operation);
}

bool ProcessModel::Observe(uint64_t start_ns, uint64_t end_ns) {
  if (end_ns < start_ns) [[unlikely]] {
    ++totals_.reversed_times;
    return false;
  }
  if (start_ns < totals_.first_ns) totals_.first_ns = start_ns;
  if (end_ns > totals_.last_ns) totals_.last_ns = end_ns;
  return true;
}

void ProcessModel::OnOperation(Operation& operation) {
  joiner_.DescribeCollective(operation);  // its calls may have come after its kernel
  // Here and not as the records come: in launch order little is late, so a union of few intervals is enough.
  if (operation.kind == OperationKind::kKernel || operation.kind == OperationKind::kCollectiveKernel) {
    if (DeviceTotals* device = SiteOf(operation).device; device != nullptr) {
      device->busy.Add(operation.start_ns, operation.end_ns);
    }
  }
  steps_.Add(StepOperationOf(operation));
  last_correlation_ = operation.correlation;
}

uint8_t ProcessModel::RolesOf(const std::string& kernel) const {
  const bool marked = marker_.kind() == StepMarker::Kind::kKernel && marker_.Matches(kernel);
  return static_cast<uint8_t>(RolesOfKernel(kernel) | (marked ? kRoleMarker : 0));
}

const ProcessModel::Site& ProcessModel::SiteOf(const Operation& operation) const {
  static const Site kUnknown;  // of a damaged state
  return operation.site < sites_.size() ? sites_[operation.site] : kUnknown;
}

StepOperation ProcessModel::StepOperationOf(const Operation& operation) {
  StepOperation step{.start_ns = operation.start_ns,
                     .end_ns = operation.end_ns,
                     .launch_ns = operation.launch_ns,
                     .range = operation.range,
                     .launched = operation.launched,
                     .same_launch = operation.correlation == last_correlation_};
  if (operation.thread < thread_roles_.size()) step.roles = thread_roles_[operation.thread];
  StepTracker::Token token;
  switch (operation.kind) {
    case OperationKind::kKernel: {
      const Site& site = SiteOf(operation);
      token = site.token;
      step.roles |= site.roles;
      break;
    }
    case OperationKind::kCollectiveKernel: {
      step.work = WorkClass::kCommunication;
      const uint64_t coarse =
          Mix(Mix(static_cast<uint64_t>(operation.kind), SiteOf(operation).collective_op), operation.comm);
      token = steps_.TokenOf(coarse, Mix(Mix(coarse, operation.calls), operation.bytes));
      if (operation.comm != 0 && !steps_.KnowsCommunication(token.fine)) {
        steps_.NameCommunication(
            token.fine,
            {.op = operation.op, .comm = operation.comm, .calls = operation.calls, .bytes = operation.bytes});
      }
      if (marker_.kind() == StepMarker::Kind::kCollective && marker_.Matches(String(operation.op))) {
        marked_calls_ += std::max<uint64_t>(operation.calls, 1);
        if (marked_calls_ >= marker_.calls()) {
          marked_calls_ -= std::min(marked_calls_, std::max<uint64_t>(marker_.calls(), 1));
          step.roles |= kRoleMarker;
        }
      }
      break;
    }
    case OperationKind::kUnseen:
      step.work = WorkClass::kUnseen;
      break;
    case OperationKind::kMemset:
    case OperationKind::kCopy: {
      const bool memset = operation.kind == OperationKind::kMemset;
      const uint64_t coarse = Mix(static_cast<uint64_t>(operation.kind), memset ? 0 : operation.direction);
      token = steps_.TokenOf(coarse, Mix(coarse, operation.bytes));
      if (memset) step.roles |= kRoleMemset;
      if (operation.pageable) step.roles |= kRolePageable;
      if (!memset) {
        step.work = operation.direction == v1::COPY_DIRECTION_H2D   ? WorkClass::kCopyToDevice
                    : operation.direction == v1::COPY_DIRECTION_D2H ? WorkClass::kCopyFromDevice
                                                                    : WorkClass::kCopyOther;
      }
      break;
    }
  }
  step.token = token.fine;
  step.coarse = token.coarse;
  return step;
}

void ProcessModel::EndSteps() {
  for (const HostPhases& step : steps_.TakeHostPhases()) {
    ledger_.EndStep(step);
    for (auto& [device, totals] : allocator_) {
      totals.peaks.EndStep(step);
      totals.tensors.EndStep(step);
    }
  }
}

void ProcessModel::ResolveHighWaterRanges() {
  for (size_t i = 0; i < MemoryLedger::kKinds; ++i) {
    HighWaterName& known = high_water_names_[i];
    const uint64_t range = ledger_.kinds()[i].high_water_range;
    if (known.range != range) known = {.range = range, .name = {0, 0}};
    if (known.range != 0 && known.name.second == 0) known.name = ranges_.NameOf(known.range);
  }
}

std::string ProcessModel::HighWaterRange(size_t kind) const {
  const auto& [domain, name] = high_water_names_[kind].name;
  return IsLibraryDomain(String(domain)) ? std::string() : std::string(String(name));
}

std::string ProcessModel::RangePath(uint64_t range) const {
  return absl::StrJoin(range_paths_.Path(range), "/", [this](std::string* out, uint32_t name) {
    absl::StrAppend(out, name == 0 ? "?" : String(name));
  });
}

void ProcessModel::ApplyHostState(const v1::Batch& batch) {
  const uint64_t left_out = batch.self().records_outside_window();
  if (const uint64_t until_ns = batch.self().left_out_until_ns(); until_ns != 0) {
    progress_.last_left_out_ns =
        std::max(progress_.last_left_out_ns, line_->Before(until_ns, batch.clock().realtime_ns()));
  } else if (left_out > totals_.self.records_outside_window()) {
    progress_.last_left_out_ns = line_->Now(batch.clock().realtime_ns());
  }
  if (!batch.has_host_state()) return;
  const v1::HostState& state = batch.host_state();
  if (state.io_bytes() > progress_.io_bytes + HostProgress::kIoWorthMentioning) {
    progress_.last_io_ns = line_->Now(batch.clock().realtime_ns());
  }
  progress_.io_bytes = state.io_bytes();
  progress_.open_ranges.assign(state.open_ranges().begin(), state.open_ranges().end());
  progress_.blocked_in = state.blocked_in();
  const auto on_line = [&](uint64_t time_ns) {
    return time_ns == 0 ? 0 : line_->Before(time_ns, batch.clock().realtime_ns());
  };
  progress_.blocked_since_ns = on_line(state.blocked_since_ns());
  progress_.last_wait_end_ns = on_line(state.last_wait_end_ns());
}

int64_t ProcessModel::ClockStepOf(const v1::Batch& batch) const {
  if (!clock_known_ || batch.clock().realtime_ns() == 0) return 0;
  const uint64_t offset = batch.clock().realtime_ns() - batch.clock().monotonic_ns();
  return static_cast<int64_t>(offset - static_cast<uint64_t>(clock_offset_ns_));
}

template <typename Losses>
void ProcessModel::ApplyLosses(const Losses& losses) {
  for (const v1::Loss& loss : losses) {
    uint64_t& known = totals_.losses[static_cast<int>(loss.reason())];
    if (loss.records() > known) steps_.NoteLoss(MayBeLaunches(loss.reason()));
    known = std::max(known, loss.records());
  }
}

void ProcessModel::CountMissing(uint64_t sent, uint64_t here) {
  if (hello_.instance() == 0) return;  // an older release does not count what a batch holds
  if (sent > records_sent_ + here) {
    totals_.records_missing += sent - records_sent_ - here;
    steps_.NoteLoss(true);
  }
  records_sent_ = std::max(records_sent_, sent);
}

void ProcessModel::ApplyClockAndLosses(const v1::Batch& batch) {
  ApplyLosses(batch.losses());
  if (batch.has_self()) {
    CountMissing(batch.self().records(), batch.records());
    totals_.self = batch.self();
  }
  if (batch.clock().realtime_ns() == 0) return;
  if (clock_known_) {
    const int64_t step = ClockStepOf(batch);
    if (step != INT64_MIN && std::abs(step) > std::abs(totals_.clock_step_ns)) totals_.clock_step_ns = step;
    // Set back, what comes after is put where it would be.
    if (step >= kClockStepNs && clock_shifts_.size() < kMaxClockSteps) {
      steps_.NoteClockStep(static_cast<uint64_t>(step), totals_.last_clock_ns,
                           line_->Now(batch.clock().realtime_ns()));
      const int64_t before = clock_shifts_.empty() ? 0 : clock_shifts_.back().second;
      clock_shifts_.emplace_back(totals_.batches - 1, before + step);
    }
  }
  clock_known_ = true;
  clock_offset_ns_ = static_cast<int64_t>(batch.clock().realtime_ns() - batch.clock().monotonic_ns());
  totals_.last_clock_ns = line_->Now(batch.clock().realtime_ns());
}

uint64_t ProcessModel::SetBackAt(uint64_t time_ns) const { return line_->BackAt(time_ns); }

int64_t ProcessModel::ClockShift(uint64_t batch) const {
  int64_t shift = 0;
  for (const auto& [from, by] : clock_shifts_) {
    if (from <= batch) shift = by;
  }
  return shift;
}

void ProcessModel::ApplyBye(const v1::Bye& bye) {
  if (bye.batches() > last_sequence_) totals_.batches_missing += bye.batches() - last_sequence_;
  last_sequence_ = std::max(last_sequence_, bye.batches());
  ApplyLosses(bye.losses());
  if (bye.records() != 0) CountMissing(bye.records(), 0);
  end_state_ =
      bye.reason() == v1::BYE_REASON_EXIT_INCOMPLETE ? EndState::kSaidByeIncomplete : EndState::kSaidBye;
  // Nothing that waits will come any more, and other ranks may go on for long.
  joiner_.Flush([this](Operation& operation) { OnOperation(operation); });
}

void ProcessModel::ApplyObservation(const v1::ProcessObservation& observation) {
  condition_.Apply(observation, line_->Now(observation.clock().realtime_ns()));
}

void ProcessModel::MarkCutOff() {
  if (end_state_ == EndState::kConnected) end_state_ = EndState::kCutOff;
}

void ProcessModel::Finish(bool goes_on) {
  const auto hand_on = [this](Operation& operation) { OnOperation(operation); };
  if (end_state_ == EndState::kSaidBye || end_state_ == EndState::kSaidByeIncomplete) {
    joiner_.Finish(hand_on);
  } else {
    joiner_.FinishSoFar(goes_on, hand_on);
  }
  steps_.Finish();
  ledger_.Finish();
  EndSteps();
  ResolveHighWaterRanges();
  ranges_.Finish();
  collectives_.Finish(goes_on);
}

}  // namespace gpuprobe::model
