#include "injector/capture/nccl/copies.h"

#include <utility>

#include "injector/capture/nccl/plans.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/capture/nccl/torn_groups.h"
#include "injector/core/event_ring.h"

namespace gpuprobe::injector::nccl {

namespace {

// The last copy was not captured, so it belongs to the plan.
void EmitLastCopy(ThreadState& thread, Copies& copies) noexcept {
  if (copies.last == 0) return;
  Emit(thread, PlanLaunchEvent{copies.plan, std::exchange(copies.last, 0), 0, 0, 0, 0});
}

bool IsOneSided(const PendingCall& call) noexcept {
  return nccl::IsOneSided(static_cast<EntryPoint>(call.event.op));
}

}  // namespace

bool AnyOneSided(const CallBatch& batch) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    if (IsOneSided(batch.calls[i])) return true;
  }
  return false;
}

void ForgetCopies(ThreadState& thread) noexcept { CallsOf(thread).copies.other_count = 0; }

void BeginCopies(ThreadState& thread) noexcept {
  Copies& copies = CallsOf(thread).copies;
  copies.plan = NewPlan();
  copies.launched = 0;
  copies.last = 0;
  copies.captured = false;
}

// If several communicators are involved, the owner of each copy is unknown.
void EndCopies(ThreadState& thread, CallBatch& batch, bool guarded) noexcept {
  Copies& copies = CallsOf(thread).copies;
  if (copies.plan == 0) return;
  if (guarded) EmitLastCopy(thread, copies);
  const uint64_t begun = std::exchange(copies.plan, 0);
  const uint64_t plan = copies.launched != 0 ? begun : 0;
  uint32_t comm = 0;
  for (uint32_t i = 0; i < batch.call_count && plan != 0; ++i) {
    const PendingCall& call = batch.calls[i];
    if (!IsOneSided(call)) continue;
    if (comm != 0 && call.event.comm != comm) return;
    comm = call.event.comm;
  }
  batch.copies_plan = plan;
  batch.copies_captured = copies.captured;
}

// If several communicators are involved, the owner of each copy is unknown here, too.
void EmitCopies(ThreadState& thread, CallBatch& batch) noexcept {
  Copies& copies = CallsOf(thread).copies;
  const uint32_t count = std::exchange(copies.other_count, 0);
  if (count == 0 || batch.launch_count != 0 || batch.copies_plan != 0 || MayBeInTornGroup(thread)) return;
  const PendingCall* carried = nullptr;
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    const PendingCall& call = batch.calls[i];
    if (!Launches(call)) continue;
    if (carried != nullptr && carried->event.comm != call.event.comm) return;
    carried = &call;
  }
  const Communicator* comm = carried == nullptr ? nullptr : Find(carried->handle);
  if (comm == nullptr || comm->blocking.load(std::memory_order_relaxed) != Blocking::kYes) return;
  batch.copies_plan = NewPlan();
  batch.copies_carry_all = true;
  for (uint32_t i = 0; i < count; ++i)
    Emit(thread, PlanLaunchEvent{batch.copies_plan, copies.others[i], 0, 0, 0, 0});
}

void NoteCopy(ThreadState& thread, uint32_t correlation) noexcept {
  Copies& copies = CallsOf(thread).copies;
  if (copies.plan == 0) {
    // When room runs out, the last entry is overwritten: the call lasts from the first copy to the last.
    if (copies.other_count < kCallCopies) ++copies.other_count;
    copies.others[copies.other_count - 1] = correlation;
    return;
  }
  ++copies.launched;
  EmitLastCopy(thread, copies);
  copies.last = correlation;
}

void NoteCopyCaptured(ThreadState& thread) noexcept {
  CallsOf(thread).copies.other_count = 0;  // they have no record
}

uint64_t PlanOfCopies(const ThreadState& thread) noexcept { return CallsOf(thread).copies.plan; }

uint64_t CapturePlannedCopy(ThreadState& thread) noexcept {
  Copies& copies = CallsOf(thread).copies;
  copies.last = 0;
  copies.captured = true;
  ++copies.launched;
  return copies.plan;
}

}  // namespace gpuprobe::injector::nccl
