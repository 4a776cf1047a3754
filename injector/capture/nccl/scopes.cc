#include "injector/capture/nccl/scopes.h"

#include <cuda.h>

#include <cstring>
#include <utility>

#include "injector/base/flat_map.h"
#include "injector/base/losses.h"
#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/cupti/launches.h"
#include "injector/capture/nccl/awaited.h"
#include "injector/capture/nccl/captured_nodes.h"
#include "injector/capture/nccl/copies.h"
#include "injector/capture/nccl/kernel_names.h"
#include "injector/capture/nccl/lifetimes.h"
#include "injector/capture/nccl/plans.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/capture/nccl/torn_groups.h"
#include "injector/core/call_clock.h"
#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector::nccl {

namespace {

bool Accepted(int32_t result) noexcept { return result == ncclSuccess || result == ncclInProgress; }

// Operations whose sequence numbers are each rank's own.
bool CountsAsTransfer(EntryPoint op) noexcept { return IsPointToPoint(op) || nccl::IsOneSided(op); }

std::atomic<uint64_t>& SequenceOf(Communicator& comm, EntryPoint op) noexcept {
  return CountsAsTransfer(op) ? comm.transfers : comm.collectives;
}

// A call of the only communicator that can have launched the kernel and was not seen on the device before;
// null if there are several, or if the kernel's was seen before.
const PendingCall* OnlyOneUnseen(const CallBatch& batch, const SeenLaunch& launch) noexcept {
  const PendingCall* unseen = nullptr;
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    const PendingCall& call = batch.calls[i];
    if (call.on_device == launch.on_device) return nullptr;
    if (call.on_device != 0 || !Launches(call)) continue;
    if (PlaceOf(call.context, call.device, launch) == Place::kOther) continue;
    if (unseen != nullptr && unseen->event.comm != call.event.comm) return nullptr;
    unseen = &call;
  }
  return unseen;
}

// Learns the device addresses of communicators from kernels that can belong to no other communicator.
void LearnPlacesOnDevice(const CallBatch& batch) noexcept {
  constexpr uint64_t kMaxLooks = 1 << 14;  // each launch is compared with each call
  if (uint64_t{batch.launch_count} * batch.call_count > kMaxLooks) return;
  for (uint32_t i = 0; i < batch.launch_count; ++i) {
    const SeenLaunch& launch = batch.launches[i];
    const PendingCall* unseen = launch.on_device == 0 ? nullptr : OnlyOneUnseen(batch, launch);
    Communicator* comm = unseen == nullptr || unseen->handle == nullptr ? nullptr : Find(unseen->handle);
    if (comm != nullptr) comm->on_device.store(launch.on_device, std::memory_order_relaxed);
  }
}

// A batch whose kernels all belong to one communicator shows where that communicator launches.
void LearnFromLaunches(const CallBatch& batch) noexcept {
  LearnPlacesOnDevice(batch);
  if (batch.call_count == 0 || batch.launch_count == 0) return;
  const PendingCall& first = batch.calls[0];
  if (first.context != 0 || first.handle == nullptr) return;
  for (uint32_t i = 1; i < batch.call_count; ++i) {
    if (batch.calls[i].event.comm != first.event.comm) return;
  }
  Communicator* comm = Find(first.handle);
  if (comm == nullptr) return;
  comm->context.store(batch.launches[0].context, std::memory_order_relaxed);
  Blocking unknown = Blocking::kUnknown;
  comm->blocking.compare_exchange_strong(unknown, Blocking::kYes, std::memory_order_relaxed);
}

// The kernel's first argument. Only compared, never dereferenced.
uint64_t OnDevice(const KernelLaunch& kernel) noexcept {
  const void* arguments = kernel.each != nullptr ? kernel.each[0] : nullptr;
  for (void* const* entry = kernel.extra;
       arguments == nullptr && entry != nullptr && *entry != CU_LAUNCH_PARAM_END; entry += 2) {
    if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) arguments = entry[1];
  }
  uint64_t first = 0;
  if (arguments != nullptr) std::memcpy(&first, arguments, sizeof first);
  return first;
}

bool Blocks(const Communicator& comm) noexcept {
  return comm.blocking.load(std::memory_order_relaxed) == Blocking::kYes;
}

bool MayLaunchLater(const CallBatch& batch) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    // Most groups are of one communicator.
    if (i > 0 && batch.calls[i].handle == batch.calls[i - 1].handle) continue;
    const Communicator* comm = Find(batch.calls[i].handle);
    if (comm != nullptr && !Blocks(*comm)) return true;
  }
  return false;
}

void NoteNotBlocking(const PendingCall& call) noexcept {
  Communicator* comm = Find(call.handle);
  if (comm != nullptr) comm->blocking.store(Blocking::kNo, std::memory_order_relaxed);
}

// After the call: true when the batch is the caller's again. False when NCCL launches it later.
bool TakenBack(Awaited** place, const CallBatch& batch) noexcept {
  Awaited* awaited = *place;
  *place = nullptr;
  bool later = batch.launch_count == 0 && LaunchesSomething(batch);
  for (uint32_t i = 0; later && i < batch.call_count; ++i) {
    const Communicator* comm = Find(batch.calls[i].handle);
    later = comm != nullptr && comm->blocking.load(std::memory_order_relaxed) == Blocking::kNo;
  }
  if (!later) return StopAwaiting(awaited) != nullptr;
  LeaveAwaited(awaited);
  return false;
}

// The calls of a batch that launched nothing may belong to a group whose start we missed. A batch that had
// nothing to launch is no evidence either way.
bool HeldBack(ThreadState& thread, const CallBatch& batch) noexcept {
  const ThreadCalls& calls = CallsOf(thread);
  if (!calls.end_due && !MayBeInTornGroup(thread)) return false;
  if (batch.launch_count == 0) return (HoldsCalls(calls) || LaunchesSomething(batch)) && Hold(thread, batch);
  OutsideAllGroups(thread);
  return false;
}

// A kernel was launched in a call of an open group, or at an inner end: so the start that we counted belongs
// to a group whose end we missed.
void NoteLaunchInside(ThreadState& thread, CallBatch& batch, uint32_t launches_before) noexcept {
  if (batch.launch_count == launches_before || batch.call_count == 0) return;
  SingleBatch last;
  CallBatch& alone = *last.Reset();
  alone.calls[alone.call_count++] = batch.calls[--batch.call_count];
  while (batch.launch_count > launches_before && alone.launch_count < alone.launch_capacity)
    alone.launches[alone.launch_count++] = batch.launches[--batch.launch_count];
  LeaveGroup(CallsOf(thread));
  OutsideAllGroups(thread);
  EmitBatch(thread, batch);
  EmitBatch(thread, alone);
  ReleaseGroupBatch(&batch);
}

}  // namespace

// Returns the last `calls` sequence numbers, up to this call's.
void ReturnNumbers(const NumberedCall& last, uint64_t calls) noexcept {
  Communicator* comm = calls == 0 ? nullptr : Find(last.handle);
  if (comm == nullptr || comm->id.load(std::memory_order_relaxed) != last.comm) return;
  uint64_t next = last.seq + 1;
  SequenceOf(*comm, static_cast<EntryPoint>(last.op))
      .compare_exchange_strong(next, next - calls, std::memory_order_relaxed);
}

void ReturnSequence(const PendingCall& call) noexcept {
  ReturnNumbers({.comm = call.event.comm, .handle = call.handle, .seq = call.event.seq, .op = call.event.op},
                1);
}

namespace {

CallsBeyond* BeyondOf(CallBatch& batch, const NumberedCall& call) noexcept {
  const auto op = static_cast<EntryPoint>(call.op);
  for (uint32_t i = 0; i < batch.beyond_count; ++i) {
    CallsBeyond& beyond = batch.beyond[i];
    if (beyond.last.comm == call.comm &&
        CountsAsTransfer(static_cast<EntryPoint>(beyond.last.op)) == CountsAsTransfer(op)) {
      return &beyond;
    }
  }
  return nullptr;
}

void NoteBeyond(CallBatch& batch, const NumberedCall& call) noexcept {
  CallsBeyond* beyond = BeyondOf(batch, call);
  if (beyond == nullptr) {
    if (batch.beyond_count == kGroupBeyond) return;
    beyond = &batch.beyond[batch.beyond_count++];
    *beyond = {};
  }
  beyond->last = call;
  ++beyond->calls;
}

// NCCL refused it.
void TakeBackBeyond(CallBatch& batch, const NumberedCall& call) noexcept {
  CallsBeyond* beyond = BeyondOf(batch, call);
  if (beyond == nullptr || beyond->calls == 0) return;
  --beyond->calls;
  --beyond->last.seq;
}

void MarkCaptured(CallBatch& batch) noexcept {
  for (uint32_t i = 0; i < batch.launch_count; ++i) {
    const SeenLaunch& launch = batch.launches[i];
    if (launch.graph_node == 0 || launch.plan == 0) continue;
    for (uint32_t call = 0; call < batch.call_count; ++call) {
      CollectiveEvent& event = batch.calls[call].event;
      if (event.plan == launch.plan) event.captured = 1;
    }
  }
}

}  // namespace

void CountCall(const CollectiveEvent& call, int32_t ranks) noexcept {
  if (!step_gate.in_use()) return;
  if (step_gate.watches_calls()) step_gate.Issued(OpName(call.op));
  if (!step_gate.on_demand() || !Accepted(call.result) || CountsAsTransfer(static_cast<EntryPoint>(call.op)))
    return;
  const uint64_t what = (call.count * 31 + call.op) * 31 + call.datatype;
  call_clock.Note(call.comm, ranks, call.seq, static_cast<uint32_t>(MixBits(what)) | 1, call.issue_ns);
  step_gate.Reached(call.comm, call.seq);
}

void EmitBatch(ThreadState& thread, CallBatch& batch) noexcept {
  if (batch.torn) LeaveUnseenKernels(batch);
  AssignPlans(batch);
  for (uint32_t i = 0; i < batch.call_count && batch.copies_plan != 0; ++i) {
    const auto op = static_cast<EntryPoint>(batch.calls[i].event.op);
    const bool copies = nccl::IsOneSided(op) && op != EntryPoint::kWaitSignal;
    if (!copies && !(batch.copies_carry_all && Launches(batch.calls[i]))) continue;
    batch.calls[i].event.plan = batch.copies_plan;
    batch.calls[i].event.captured = batch.copies_captured ? 1 : 0;
  }
  LearnFromLaunches(batch);
  MarkCaptured(batch);
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    CountCall(batch.calls[i].event, batch.calls[i].ranks);
    if (uint64_t step = 0; step_gate.watches_calls() && step_gate.TakeBegun(&step))
      Emit(thread, TracedStepEvent{Stamp(), step});
    RecordCallLeft(thread, batch.calls[i].event, OpName(batch.calls[i].event.op));
    Emit(thread, batch.calls[i].event);
  }
  for (uint32_t i = 0; i < batch.launch_count; ++i) {
    const SeenLaunch& launch = batch.launches[i];
    if (launch.plan == 0) continue;
    if (launch.graph_node != 0) RememberCaptured(launch.graph_node, {.plan = launch.plan, .copy = 0});
    const uint32_t correlation = launch.graph_node != 0 ? 0 : launch.correlation;
    Emit(thread, PlanLaunchEvent{launch.plan, correlation, 0, launch.graph_node, 0, 0});
  }
}

bool Scope::Enter() noexcept {
  ThreadState& thread = CurrentThread();
  // The state that threads beyond the limit share has no thread id; nothing may be kept in it.
  thread_ = thread.tid != 0 ? &thread : nullptr;
  if (thread_ == nullptr) return false;
  EnterNccl(*thread_);
  if (thread_->nccl_call_depth != 1) return false;
  thread_->works_for_application = true;
  thread_->nccl_call.Begin(kEntryPointNames[static_cast<size_t>(origin_.entry_point)].data(), Stamp());
  return true;
}

void Scope::Leave() noexcept {
  if (thread_ == nullptr) return;
  if (thread_->nccl_call_depth == 1) thread_->nccl_call.End();
  --thread_->nccl_call_depth;
}

void CallScope::Begin(size_t count, ncclDataType_t datatype, int root, int peer, const void* comm,
                      const void* stream, int64_t reduction) noexcept {
  call_ = nullptr;
  beyond_ = {};
  single_ = false;
  awaited_ = nullptr;
  if (!Enter()) {
    if (thread_ == nullptr) CountRefused();
    return;
  }
  Guard guard;
  if (!guard) return CountRefused();
  ThreadCalls& calls = CallsOf(*thread_);
  if (EndedPastUs(calls)) ReportEndedGroup(*thread_);
  Communicator* known = KnownCommunicator(*thread_, comm, origin_.way);
  const bool blocks = known == nullptr || Blocks(*known);
  if (!blocks) ResolveAwaited(*thread_, comm);
  single_ = !InGroup(calls);
  if (single_) {
    batch_ = blocks ? nullptr : ClaimGroupBatch();
    if (batch_ == nullptr) batch_ = local_.Reset();
    calls.batch = batch_;
  }
  CallBatch* batch = BatchOfGroup(calls);
  launches_before_ = batch == nullptr ? 0 : batch->launch_count;
  // Lost calls count, too, so that later numbers match those of the other ranks.
  const uint64_t seq =
      known == nullptr ? 0 : SequenceOf(*known, origin_.entry_point).fetch_add(1, std::memory_order_relaxed);
  if (batch == nullptr || batch->call_count == batch->call_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
    if (known == nullptr) return;
    beyond_ = {.comm = known->id.load(std::memory_order_relaxed),
               .handle = const_cast<void*>(comm),
               .seq = seq,
               .op = static_cast<uint16_t>(origin_.entry_point)};
    if (batch != nullptr && !single_) NoteBeyond(*batch, beyond_);
    return;
  }
  PendingCall& call = batch->calls[batch->call_count++];
  const auto type = static_cast<uint8_t>(datatype);
  call.event = {};
  call.event.seq = seq;
  call.event.count = count;
  call.event.range_id = InnermostRange(*thread_);
  call.event.comm = known == nullptr ? 0 : known->id.load(std::memory_order_relaxed);
  call.event.root = root;
  call.event.peer = peer;
  // The old name of the same operation, in place.
  const bool old_name = origin_.entry_point == EntryPoint::kBcast;
  call.event.op = static_cast<uint16_t>(old_name ? EntryPoint::kBroadcast : origin_.entry_point);
  call.event.datatype = type;
  call.event.element_bytes = DataTypeBytes(type);
  call.event.reduction = ReductionNumber(reduction) & 0x7f;
  call.event.source =
      static_cast<uint8_t>(origin_.way >= kFirstProviderWay ? wire::CallSource::kCallSourceRelocation
                                                            : wire::CallSource::kCallSourceInterposed);
  call.stream = NormalStream(stream);
  SetPlace(call, known);
  call.handle = known == nullptr ? nullptr : const_cast<void*>(comm);
  call.ranks = known == nullptr ? 0 : known->ranks.load(std::memory_order_relaxed);
  call.told = false;
  call_ = &call;
  if (single_) ForgetCopies(*thread_);
  if (single_ && nccl::IsOneSided(origin_.entry_point)) BeginCopies(*thread_);
  if (single_ && batch_ != &local_.batch) awaited_ = Await(*thread_, batch_);
  call.event.issue_ns = Stamp();
  RecordCallEntered(*thread_, call.event, OpName(call.event.op));
}

void CallScope::End(ncclResult_t result) noexcept {
  Leave();
  if (call_ == nullptr) {
    if (thread_ == nullptr) return;
    if (single_) TakeBatch(CallsOf(*thread_));
    if (beyond_.comm != 0 && !Accepted(result)) {
      CallBatch* batch = CallsOf(*thread_).batch;
      if (!single_ && batch != nullptr) TakeBackBeyond(*batch, beyond_);
      ReturnNumbers(beyond_, 1);
    }
    return;
  }
  call_->event.return_ns = Stamp();
  call_->event.result = result;
  if (!Accepted(result)) ReturnSequence(*call_);
  if (!single_) {
    CallBatch* batch = CallsOf(*thread_).batch;
    if (batch == nullptr || batch->launch_count == launches_before_) return;
    if (const Guard guard; guard) NoteLaunchInside(*thread_, *batch, launches_before_);
    return;
  }
  TakeBatch(CallsOf(*thread_));
  Guard guard;
  EndCopies(*thread_, *batch_, static_cast<bool>(guard));
  if (guard && result == ncclInProgress) NoteNotBlocking(*call_);
  if (guard) EmitCopies(*thread_, *batch_);
  if (awaited_ != nullptr && !TakenBack(&awaited_, *batch_)) return;
  if (guard && !HeldBack(*thread_, *batch_)) EmitBatch(*thread_, *batch_);
  if (batch_ != &local_.batch) ReleaseGroupBatch(batch_);
}

void GroupStartScope::Begin() noexcept {
  ours_ = Enter();
  if (!ours_ || !EndedPastUs(CallsOf(*thread_))) return;
  if (const Guard guard; guard) ReportEndedGroup(*thread_);
}

void GroupStartScope::End(ncclResult_t result) noexcept {
  Leave();
  if (ours_ && result == ncclSuccess) StartLevel(CallsOf(*thread_));
}

void GroupEndScope::Begin() noexcept {
  ours_ = Enter();
  left_ = false;
  awaited_ = nullptr;
  if (!ours_) return;
  ForgetCopies(*thread_);
  ThreadCalls& calls = CallsOf(*thread_);
  Guard guard;
  if (guard && EndedPastUs(calls)) ReportEndedGroup(*thread_);
  if (InGroup(calls)) {
    if (guard && (HoldsCalls(calls) || MayBeInTornGroup(*thread_))) JoinTornGroup(*thread_);
    CallBatch* batch = calls.batch;
    const bool last = calls.depth == 1 && batch != nullptr && batch->call_count != 0;
    if (guard && last && MayLaunchLater(*batch)) awaited_ = Await(*thread_, batch);
    if (last && AnyOneSided(*batch)) BeginCopies(*thread_);
    return;
  }
  if (guard && OpenTornGroup(calls)) return;
  Leave();
  left_ = true;
}

// NCCL ends one level whatever the result, and abandons the group when the outermost level fails.
void GroupEndScope::End(ncclResult_t result) noexcept {
  if (left_) return;
  Leave();
  ThreadCalls* calls = ours_ ? &CallsOf(*thread_) : nullptr;
  if (calls == nullptr || !InGroup(*calls) || !EndLevel(*calls)) return;
  CallBatch* batch = TakeBatch(*calls);
  const bool makes = result == ncclInProgress && batch != nullptr && batch->init_count > 0;
  EndCreation(*thread_, result, makes ? *batch->inits[0].newcomm : nullptr);
  if (batch == nullptr) return;
  Guard guard;
  EndCopies(*thread_, *batch, static_cast<bool>(guard));
  for (uint32_t i = 0; i < batch->call_count && !Accepted(result); ++i) {
    if (batch->calls[i].event.result == ncclSuccess) batch->calls[i].event.result = result;
  }
  for (uint32_t i = 0; i < batch->call_count && guard && result == ncclInProgress; ++i)
    NoteNotBlocking(batch->calls[i]);
  if (guard) {
    for (uint32_t i = 0; i < batch->init_count && Accepted(result); ++i) {
      AddCommunicator(*thread_, batch->inits[i], origin_.way, result == ncclSuccess);
    }
  }
  if (guard) EmitCopies(*thread_, *batch);
  if (awaited_ != nullptr && !TakenBack(&awaited_, *batch)) return;
  if (guard && !HeldBack(*thread_, *batch)) EmitBatch(*thread_, *batch);
  ReleaseGroupBatch(batch);
}

void GroupSimulateEndScope::End(ncclResult_t result) noexcept {
  const ThreadCalls* calls = ours_ ? &CallsOf(*thread_) : nullptr;
  if (calls != nullptr && calls->batch != nullptr && calls->depth == 1) {
    CallBatch* batch = calls->batch;
    for (uint32_t i = 0; i < batch->beyond_count; ++i)
      ReturnNumbers(batch->beyond[i].last, batch->beyond[i].calls);
    for (uint32_t i = batch->call_count; i > 0; --i) ReturnSequence(batch->calls[i - 1]);
    batch->call_count = 0;
    batch->launch_count = 0;
    batch->init_count = 0;
    batch->beyond_count = 0;
  }
  GroupEndScope::End(result);
}

bool NoteKernelLaunch(ThreadState& thread, const KernelLaunch& kernel) noexcept {
  CallBatch* batch = CallsOf(thread).batch;
  if (batch == nullptr || thread.nccl_call_depth == 0) return false;
  const SeenLaunch launch = SeenLaunchOf(kernel);
  if (launch.ops == 0) return false;
  if (batch->launch_count == batch->launch_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
    return true;
  }
  batch->launches[batch->launch_count++] = launch;
  return true;
}

SeenLaunch SeenLaunchOf(const KernelLaunch& kernel) noexcept {
  const KernelTraits traits = ParseKernelName(kernel.name);
  return {NormalStream(kernel.stream),
          reinterpret_cast<uint64_t>(kernel.context),
          kernel.correlation,
          traits.ops,
          traits.datatypes,
          0,
          0,
          0,
          DeviceOfContext(kernel.context),
          traits.takes_communicator ? OnDevice(kernel) : 0};
}

bool WantsGraphNode(const ThreadState& thread, bool cloned, bool copies) noexcept {
  if (cloned) return AnyCaptured();
  if (copies) return PlanOfCopies(thread) != 0;
  const ThreadCalls& calls = CallsOf(thread);
  return thread.nccl_call_depth != 0 ? calls.batch != nullptr : EndedPastUs(calls);
}

void NoteGraphNode(ThreadState& thread, uint64_t id, uint64_t original_id, uint64_t owner,
                   bool copies) noexcept {
  if (original_id != 0) {
    CapturedPlan carried = PlanOfCaptured(original_id);
    if (carried.plan == 0) return;
    if (thread.graph_copy_is_child) carried.copy = CopyOfCopy(carried.copy, thread.graph_copy);
    RememberCaptured(id, carried);
    Emit(thread, GraphNodeEvent{Stamp(), owner, id, original_id});
    Emit(thread, PlanLaunchEvent{carried.plan, 0, thread.instantiating_graph, id, carried.copy, 0});
    return;
  }
  if (copies) {
    const uint64_t plan = CapturePlannedCopy(thread);
    RememberCaptured(id, {.plan = plan, .copy = 0});
    Emit(thread, GraphNodeEvent{Stamp(), owner, id, 0});
    Emit(thread, PlanLaunchEvent{plan, 0, 0, id, 0, 0});
    return;
  }
  const EndedGroup ended(thread);
  const CallBatch* batch = thread.nccl_call_depth != 0 ? CallsOf(thread).batch : ended.batch();
  if (batch == nullptr || batch->launch_count == 0) return;
  SeenLaunch& launch = batch->launches[batch->launch_count - 1];
  if (launch.graph_node != 0) return;
  launch.graph_node = id;
  Emit(thread, GraphNodeEvent{Stamp(), owner, id, 0});
}

}  // namespace gpuprobe::injector::nccl
