#include "collector/model/process_model.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/model/collective_kernels.h"

namespace gpuprobe::model {
namespace {

// Ids are dense by construction; a gap can only come from lost batches. A larger jump is not from our
// injector, and following it would let a peer make us allocate at will.
constexpr size_t kMaxIdJump = 65536;
constexpr size_t kMaxId = size_t{1} << 22;
// A launch is sent with the batch after it at the latest; this many batches are patience enough.
constexpr uint64_t kOrphanBatches = 8;
constexpr size_t kMaxOrphans = 65536;
// Nodes that carry collectives: a program with a thousand graphs of a thousand layers.
constexpr size_t kMaxGraphNodes = size_t{1} << 20;

template <typename T>
absl::Status MakeRoom(std::vector<T>& dense, uint32_t id, const char* what) {
  if (id < dense.size()) return absl::OkStatus();
  if (id >= kMaxId || id > dense.size() + kMaxIdJump) {
    return absl::InvalidArgumentError(absl::StrCat(what, " id ", id, " is out of range"));
  }
  dense.resize(std::max<size_t>(size_t{id} + 1, std::min(dense.size() * 2, kMaxId)));
  return absl::OkStatus();
}

}  // namespace

ProcessModel::ProcessModel(v1::Hello hello, ProcessEvents events)
    : events_(std::move(events)),
      hello_(std::move(hello)),
      collectives_(
          {.issued = events_.collectives.issued,
           .finished = [this](uint32_t comm, uint64_t seq, uint64_t end_ns) { Finished(comm, seq, end_ns); },
           .settled = events_.collectives.settled}) {}

void ProcessModel::Finished(uint32_t comm, uint64_t seq, uint64_t end_ns) {
  HostProgress::LastCall& last = progress_.last_call;
  if (last.comm == comm && last.seq == seq) last.done_ns = end_ns;
  events_.collectives.finished(comm, seq, end_ns);
}

void ProcessModel::Rejoin(const v1::Hello& hello) {
  hello_ = hello;
  end_state_ = EndState::kConnected;
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
  if (absl::Status s = ApplyDefinitions(batch); !s.ok()) return s;
  if (absl::Status s = ApplyHostRecords(batch); !s.ok()) return s;
  if (absl::Status s = ApplyDeviceRecords(batch); !s.ok()) return s;
  RetryOrphans();
  RetryUnexplained(kOrphanBatches);
  collectives_.EndBatch();
  // What happened before the previous batch was sealed has arrived by now.
  const bool has_clock = batch.clock().realtime_ns() != 0;
  ledger_.ApplyUntil(has_clock ? totals_.last_clock_ns : UINT64_MAX);
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
    if (def.value() == "Send" || def.value() == "Recv") {
      if (point_to_point_.size() <= def.id()) point_to_point_.resize(def.id() + 1);
      point_to_point_[def.id()] = true;
    }
  }
  for (const v1::ThreadDef& def : batch.threads()) {
    if (absl::Status s = MakeRoom(main_thread_, def.id(), "thread"); !s.ok()) return s;
    main_thread_[def.id()] = def.main();
  }
  for (const v1::KernelSite& def : batch.kernel_sites()) {
    if (absl::Status s = MakeRoom(sites_, def.id(), "kernel site"); !s.ok()) return s;
    KernelTotals*& kernel = kernel_by_name_[def.name()];
    if (kernel == nullptr) {
      kernels_.push_back(std::make_unique<KernelTotals>());
      kernel = kernels_.back().get();
      kernel->name = def.name();
    }
    sites_[def.id()] = {.kernel = kernel,
                        .device = &DeviceFor(def.device()),
                        .collective_op = OperationIdOfKernel(String(def.name()))};
  }
  for (const v1::Device& device : batch.devices()) DeviceFor(device.ordinal()).info = device;
  if (batch.has_versions()) versions_ = batch.versions();
  for (const v1::Communicator& comm : batch.communicators()) {
    v1::Communicator& known = communicators_[comm.id()];
    MergeCommunicator(comm, known);
    events_.communicator(known);
  }
  return absl::OkStatus();
}

absl::Status ProcessModel::ApplyHostRecords(const v1::Batch& batch) {
  absl::Status status = ForEachLaunch(batch, [this](const LaunchRecord& r) {
    ++totals_.records;
    ++totals_.launches;
    progress_.last_launch_ns = std::max(progress_.last_launch_ns, r.time_ns);
    CorrelationRing::Slot& slot = ring_.Claim(r.correlation);
    slot.launched = true;
    slot.launch_ns = r.time_ns;
    slot.range = r.range != 0 ? r.range : r.fallback_range;
  });
  if (!status.ok()) return status;
  status = ForEachPlan(batch, [this](uint64_t plan, uint64_t correlation, uint64_t graph_node) {
    if (graph_node != 0) {
      if (plan_of_node_.size() < kMaxGraphNodes) plan_of_node_[graph_node] = plan;
      collectives_.MarkCaptured(plan);
      return;
    }
    CorrelationRing::Slot& slot = ring_.Claim(correlation);
    slot.plan = plan;
    collectives_.AddLaunch(plan, correlation);
    if (slot.matched) collectives_.AddKernel(plan, slot.start_ns, slot.end_ns, true);
  });
  if (!status.ok()) return status;
  // Before the ranges: the one in which it happened may close in the same batch.
  status = ForEachAllocation(batch, [this](const AllocationRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    range_paths_.Watch(r.range);
    ledger_.Add(r);
  });
  if (!status.ok()) return status;
  if (status = ApplyAllocatorRecords(batch); !status.ok()) return status;
  status = ForEachRange(batch, [this](const RangeRecord& r) {
    ++totals_.records;
    if (r.unclosed) ++totals_.ranges_unclosed;
    if (r.kind == v1::RANGE_KIND_MARK) ++totals_.marks;
    Observe(r.start_ns, r.end_ns);
    range_paths_.Close(r);
    ranges_.Close(r, r.thread < main_thread_.size() && main_thread_[r.thread]);
  });
  if (!status.ok()) return status;
  status = ForEachCollective(batch, [this](const CollectiveRecord& r) {
    ++totals_.records;
    Observe(r.issue_ns, r.return_ns);
    progress_.last_call = {.issue_ns = r.issue_ns,
                           .return_ns = r.return_ns,
                           .op = r.op,
                           .comm = r.comm,
                           .seq = r.seq,
                           .plan = r.plan,
                           .done_ns = 0};
    collectives_.AddCall(r, r.op < point_to_point_.size() && point_to_point_[r.op]);
  });
  if (!status.ok()) return status;
  return ForEachSync(batch, [this](const SyncRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    const auto what = static_cast<size_t>(r.what);
    SyncTotals& totals = totals_.syncs[what < totals_.syncs.size() ? what : 0];
    ++totals.count;
    totals.duration_ns += r.end_ns - r.start_ns;
  });
}

absl::Status ProcessModel::ApplyAllocatorRecords(const v1::Batch& batch) {
  absl::Status status = ForEachAllocatorLevel(batch, [this](const AllocatorLevelRecord& r) {
    ++totals_.records;
    Observe(r.time_ns, r.time_ns);
    AllocatorTotals& totals = allocator_[r.device];
    totals.allocated_bytes = r.allocated_bytes;
    totals.reserved_bytes = r.reserved_bytes;
    totals.peak_allocated_bytes = std::max(totals.peak_allocated_bytes, r.peak_allocated_bytes);
    totals.peak_reserved_bytes = std::max(totals.peak_reserved_bytes, r.peak_reserved_bytes);
  });
  if (!status.ok()) return status;
  return ForEachAllocatorRefusal(batch, [this](const AllocatorRefusalRecord& r) {
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
  absl::Status status = ForEachKernel(batch, [&](const KernelRecord& r) {
    ++totals_.records;
    if (r.site >= sites_.size() || sites_[r.site].kernel == nullptr) [[unlikely]] {
      bad_site = absl::InvalidArgumentError(absl::StrCat("kernel site ", r.site, " was not defined"));
      return;
    }
    if (!Observe(r.start_ns, r.end_ns)) return;
    ++totals_.kernels;
    const Site& site = sites_[r.site];
    if (r.graph_node != 0) ++totals_.graph_kernels;
    if (site.collective_op != 0) JoinCollective(r, site.collective_op);
    site.kernel->time_ns.Add(r.end_ns - r.start_ns);
    ++site.device->kernels;
    site.device->busy.Add(r.start_ns, r.end_ns);
    Join(r.correlation, r.start_ns, r.end_ns, r.graph_node == 0);
  });
  if (!status.ok()) return status;
  if (!bad_site.ok()) return bad_site;
  status = ForEachCopy(batch, [this](const CopyRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    const auto direction = static_cast<size_t>(r.direction);
    CopyTotals& totals = totals_.copies[direction < totals_.copies.size() ? direction : 0];
    ++totals.count;
    totals.bytes += r.bytes;
    totals.duration_ns += r.end_ns - r.start_ns;
    totals.busy.Add(r.start_ns, r.end_ns);
    Join(r.correlation, r.start_ns, r.end_ns, false);
  });
  if (!status.ok()) return status;
  return ForEachMemset(batch, [this](const MemsetRecord& r) {
    ++totals_.records;
    if (!Observe(r.start_ns, r.end_ns)) return;
    ++totals_.memsets;
    totals_.memset_bytes += r.bytes;
    totals_.memset_ns += r.end_ns - r.start_ns;
    Join(r.correlation, r.start_ns, r.end_ns, false);
  });
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

bool ProcessModel::TryJoin(uint64_t correlation, uint64_t start_ns, uint64_t end_ns, bool kernel) {
  CorrelationRing::Slot* slot = ring_.Find(correlation);
  if (slot == nullptr) return false;
  // A plan's time is a hull: telling it of the same kernel twice changes nothing.
  if (slot->plan != 0) collectives_.AddKernel(slot->plan, start_ns, end_ns, slot->launched);
  if (!slot->launched) return false;
  if (kernel && start_ns >= slot->launch_ns) totals_.launch_delay_ns.Add(start_ns - slot->launch_ns);
  slot->matched = true;
  slot->start_ns = slot->end_ns == 0 ? start_ns : std::min(slot->start_ns, start_ns);
  slot->end_ns = std::max(slot->end_ns, end_ns);
  if (slot->range != 0) ranges_.AddGpuWork(slot->range, start_ns, end_ns);
  return true;
}

void ProcessModel::Join(uint64_t correlation, uint64_t start_ns, uint64_t end_ns, bool kernel) {
  progress_.last_device_end_ns = std::max(progress_.last_device_end_ns, end_ns);
  if (TryJoin(correlation, start_ns, end_ns, kernel)) {
    ++totals_.attributed;
  } else if (orphans_.size() < kMaxOrphans) {
    orphans_.push_back({correlation, start_ns, end_ns, totals_.batches, kernel});
  } else {
    ++totals_.unattributed;
  }
}

bool ProcessModel::Explained(const Unexplained& kernel) {
  if (kernel.graph_node == 0) {
    const CorrelationRing::Slot* slot = ring_.Find(kernel.correlation);
    return slot != nullptr && slot->plan != 0;
  }
  const auto plan = plan_of_node_.find(kernel.graph_node);
  if (plan == plan_of_node_.end()) return false;
  collectives_.AddReplayedKernel(plan->second, kernel.correlation, kernel.start_ns, kernel.end_ns);
  return true;
}

void ProcessModel::JoinCollective(const KernelRecord& kernel, uint32_t op) {
  const Unexplained waiting{.correlation = kernel.correlation,
                            .graph_node = kernel.graph_node,
                            .start_ns = kernel.start_ns,
                            .end_ns = kernel.end_ns,
                            .op = op,
                            .batch = totals_.batches};
  if (Explained(waiting)) return;
  if (unexplained_.size() < kMaxOrphans) {
    unexplained_.push_back(waiting);
  } else {
    collectives_.AddUnexplained(op, kernel.start_ns, kernel.end_ns);
  }
}

void ProcessModel::RetryUnexplained(uint64_t patience) {
  std::erase_if(unexplained_, [&](const Unexplained& kernel) {
    if (Explained(kernel)) return true;
    if (totals_.batches < kernel.batch + patience) return false;
    collectives_.AddUnexplained(kernel.op, kernel.start_ns, kernel.end_ns);
    return true;
  });
}

void ProcessModel::RetryOrphans() {
  std::erase_if(orphans_, [this](const Orphan& orphan) {
    if (TryJoin(orphan.correlation, orphan.start_ns, orphan.end_ns, orphan.kernel)) {
      ++totals_.attributed;
      return true;
    }
    if (totals_.batches < orphan.batch + kOrphanBatches) return false;
    ++totals_.unattributed;
    return true;
  });
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
  return std::string(String(high_water_names_[kind].name.second));
}

std::string ProcessModel::RangePath(uint64_t range) const {
  return absl::StrJoin(range_paths_.Path(range), "/", [this](std::string* out, uint32_t name) {
    absl::StrAppend(out, name == 0 ? "?" : String(name));
  });
}

void ProcessModel::ApplyHostState(const v1::Batch& batch) {
  const uint64_t left_out = batch.self().records_outside_window();
  if (left_out > totals_.self.records_outside_window())
    progress_.last_left_out_ns = batch.clock().realtime_ns();
  if (!batch.has_host_state()) return;
  const v1::HostState& state = batch.host_state();
  if (state.io_bytes() > progress_.io_bytes + HostProgress::kIoWorthMentioning) {
    progress_.last_io_ns = batch.clock().realtime_ns();
  }
  progress_.io_bytes = state.io_bytes();
  progress_.open_ranges.assign(state.open_ranges().begin(), state.open_ranges().end());
  progress_.blocked_in = state.blocked_in();
  progress_.blocked_since_ns = state.blocked_since_ns();
}

void ProcessModel::ApplyClockAndLosses(const v1::Batch& batch) {
  for (const v1::Loss& loss : batch.losses()) {
    uint64_t& known = totals_.losses[static_cast<int>(loss.reason())];
    known = std::max(known, loss.records());
  }
  if (batch.has_self()) totals_.self = batch.self();
  if (batch.clock().realtime_ns() == 0) return;
  const auto offset = static_cast<int64_t>(batch.clock().realtime_ns() - batch.clock().monotonic_ns());
  if (clock_known_) {
    const auto step =
        static_cast<int64_t>(static_cast<uint64_t>(offset) - static_cast<uint64_t>(clock_offset_ns_));
    if (step != INT64_MIN && std::abs(step) > std::abs(totals_.clock_step_ns)) totals_.clock_step_ns = step;
  }
  clock_known_ = true;
  clock_offset_ns_ = offset;
  totals_.last_clock_ns = batch.clock().realtime_ns();
}

void ProcessModel::ApplyBye(const v1::Bye& bye) {
  if (bye.batches() > last_sequence_) totals_.batches_missing += bye.batches() - last_sequence_;
  end_state_ =
      bye.reason() == v1::BYE_REASON_EXIT_INCOMPLETE ? EndState::kSaidByeIncomplete : EndState::kSaidBye;
}

void ProcessModel::MarkCutOff() {
  if (end_state_ == EndState::kConnected) end_state_ = EndState::kCutOff;
}

void ProcessModel::Finish() {
  totals_.unattributed += orphans_.size();
  orphans_.clear();
  ledger_.Finish();
  ResolveHighWaterRanges();
  ranges_.Finish();
  RetryUnexplained(0);
  collectives_.Finish();
}

}  // namespace gpuprobe::model
