#include "injector/capture/nccl/torn_groups.h"

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plans.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/core/event_ring.h"

namespace gpuprobe::injector::nccl {

namespace {

void Report(ThreadState& thread, CallBatch* held) noexcept {
  if (held == nullptr) return;
  EmitBatch(thread, *held);
  ReleaseGroupBatch(held);
}

// Notes the issuing thread in the calls, because another thread may report them.
void NoteThread(ThreadState& thread, CallBatch& batch) noexcept {
  const EventRing* ring = RingOf(thread);
  if (ring == nullptr) return;
  for (uint32_t i = 0; i < batch.call_count; ++i) batch.calls[i].event.thread = ring->thread_id();
}

bool CarriesSome(const CallBatch& batch, const SeenLaunch& launch) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    const PendingCall& call = batch.calls[i];
    if (call.stream == launch.stream && call.event.op < 16 && (launch.ops >> call.event.op & 1u) != 0)
      return true;
  }
  return false;
}

// What a batch's calls need, at least.
struct Expected {
  uint32_t calls = 0;    // that launch something
  uint32_t told = 0;     // of these, reported by NCCL's plugin interface
  uint32_t kernels = 0;  // one for each operation of each communicator
};

Expected Expects(const CallBatch& batch) noexcept {
  Expected expected;
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    const PendingCall& call = batch.calls[i];
    if (!Launches(call)) continue;
    ++expected.calls;
    expected.told += call.told ? 1 : 0;
    bool first = true;
    for (uint32_t j = 0; first && j < i; ++j) {
      const PendingCall& other = batch.calls[j];
      first = other.event.comm != call.event.comm || other.event.op != call.event.op || !Launches(other);
    }
    expected.kernels += first ? 1 : 0;
  }
  return expected;
}

// The group has all its kernels: one more belongs to the next group, which we missed entirely.
bool IsComplete(const CallBatch& batch) noexcept {
  const Expected expected = Expects(batch);
  if (expected.told != 0) return expected.told == expected.calls;
  return expected.kernels != 0 && batch.launch_count >= expected.kernels;
}

}  // namespace

bool MayBeInTornGroup(const ThreadState& thread) noexcept {
  const uint32_t patches = LatePatches();
  return CallsOf(thread).patches_seen != patches || patches % 2 != 0;
}

void OutsideAllGroups(ThreadState& thread) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  calls.patches_seen = LatePatches();
  Report(thread, TakeHeld(calls));
}

bool Hold(ThreadState& thread, const CallBatch& batch) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  if (EndedPastUs(calls)) ReportEndedGroup(thread);
  CallBatch* held = Take(calls.held);
  if (held == nullptr) held = ClaimGroupBatch();
  const bool fits = held != nullptr && held->call_capacity - held->call_count >= batch.call_count;
  if (fits) {
    std::copy_n(batch.calls, batch.call_count, held->calls + held->call_count);
    held->call_count += batch.call_count;
    held->torn = true;
    NoteThread(thread, *held);
  }
  HoldCalls(calls, held);
  return fits;
}

void JoinTornGroup(ThreadState& thread) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  if (HoldsCalls(calls)) {
    if (calls.batch != nullptr && !Hold(thread, *calls.batch)) return;
    CallBatch* held = TakeHeld(calls);
    if (held == nullptr) return;  // the process ends, and they have been reported
    if (CallBatch* own = TakeBatch(calls); own != nullptr) {
      std::copy_n(own->inits, own->init_count, held->inits);
      held->init_count = own->init_count;
      ReleaseGroupBatch(own);
    }
    calls.batch = held;
  }
  if (CallBatch* batch = BatchOfGroup(calls); batch != nullptr) batch->torn = true;
}

bool NoteLaunchPastUs(ThreadState& thread, const SeenLaunch& launch) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  if (InGroup(calls) || HoldsCalls(calls)) NoteEndPastUs(thread);
  CallBatch* batch = Take(calls.ended);
  if (batch == nullptr) return false;
  if (IsComplete(*batch)) {
    ForgetEnded(calls);
    Report(thread, batch);
    return false;
  }
  const bool carries = batch->call_count == 0 || CarriesSome(*batch, launch);
  if (carries && batch->launch_count == batch->launch_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
  } else if (carries) {
    batch->launches[batch->launch_count++] = launch;
  }
  calls.ended.store(batch, std::memory_order_release);
  return carries;
}

void NoteEndPastUs(ThreadState& thread) noexcept {
  ReportEndedGroup(thread);
  ThreadCalls& calls = CallsOf(thread);
  CallBatch* batch = LeaveGroup(calls);
  // Calls held before are those of the same group.
  if (batch != nullptr && HoldsCalls(calls)) {
    if (!Hold(thread, *batch)) EmitBatch(thread, *batch);
    ReleaseGroupBatch(batch);
    batch = nullptr;
  }
  if (batch == nullptr) batch = TakeHeld(calls);
  if (batch == nullptr) return;
  batch->torn = true;
  NoteThread(thread, *batch);
  EndPastUs(calls, batch);
}

void ReportEndedGroup(ThreadState& thread) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  ForgetEnded(calls);
  Report(thread, Take(calls.ended));
}

EndedGroup::EndedGroup(ThreadState& thread) noexcept : calls_(CallsOf(thread)), batch_(Take(calls_.ended)) {}

EndedGroup::~EndedGroup() {
  if (batch_ != nullptr) calls_.ended.store(batch_, std::memory_order_release);
}

void ReportEndedGroups(ThreadState& thread) noexcept {
  ForEachThread([&thread](ThreadState& other) noexcept {
    ThreadCalls& calls = CallsOf(other);
    if (calls.ended.load(std::memory_order_relaxed) == nullptr) {
      calls.ended_looks = 0;
    } else if (++calls.ended_looks > 1) {
      calls.ended_looks = 0;
      Report(thread, Take(calls.ended));
    }
  });
}

void LeaveUnseenKernels(CallBatch& batch) noexcept {
  const Expected expected = Expects(batch);
  if (expected.told != 0 || expected.kernels == 0 || batch.launch_count <= expected.kernels) return;
  std::copy_n(batch.launches + (batch.launch_count - expected.kernels), expected.kernels, batch.launches);
  batch.launch_count = expected.kernels;
}

void FlushHeld(ThreadState& thread) noexcept {
  ForEachThread([&thread](ThreadState& other) noexcept {
    Report(thread, Take(CallsOf(other).ended));
    Report(thread, Take(CallsOf(other).held));
  });
}

}  // namespace gpuprobe::injector::nccl
