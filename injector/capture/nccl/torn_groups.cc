#include "injector/capture/nccl/torn_groups.h"

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/capture/nccl/patching.h"
#include "injector/capture/nccl/plans.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/core/event_ring.h"

namespace gpuprobe::injector::nccl {

namespace {

CallBatch* Take(std::atomic<CallBatch*>& place) noexcept {
  if (place.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return place.exchange(nullptr, std::memory_order_acquire);
}

void Report(ThreadState& thread, CallBatch* held) noexcept {
  if (held == nullptr) return;
  EmitBatch(thread, *held);
  ReleaseGroupBatch(held);
}

// Somebody else may report it.
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
  uint32_t told = 0;     // of these, by NCCL's plugin interface
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
  return thread.nccl_patches_seen != patches || patches % 2 != 0;
}

bool HoldsCalls(const ThreadState& thread) noexcept {
  return thread.nccl_held.load(std::memory_order_relaxed) != nullptr;
}

void OutsideAllGroups(ThreadState& thread) noexcept {
  thread.nccl_patches_seen = LatePatches();
  Report(thread, Take(thread.nccl_held));
}

bool Hold(ThreadState& thread, const CallBatch& batch) noexcept {
  CallBatch* held = Take(thread.nccl_held);
  if (held == nullptr) held = ClaimGroupBatch();
  const bool fits = held != nullptr && held->call_capacity - held->call_count >= batch.call_count;
  if (fits) {
    std::copy_n(batch.calls, batch.call_count, held->calls + held->call_count);
    held->call_count += batch.call_count;
    held->torn = true;
    NoteThread(thread, *held);
  }
  thread.nccl_held.store(held, std::memory_order_release);
  return fits;
}

CallBatch* TakeTornGroup(ThreadState& thread) noexcept { return Take(thread.nccl_held); }

void JoinTornGroup(ThreadState& thread) noexcept {
  CallBatch* batch = thread.nccl_batch;
  if (HoldsCalls(thread)) {
    if (batch != nullptr && !Hold(thread, *batch)) return;
    CallBatch* held = TakeTornGroup(thread);
    if (batch != nullptr) {
      std::copy_n(batch->inits, batch->init_count, held->inits);
      held->init_count = batch->init_count;
      ReleaseGroupBatch(batch);
    }
    batch = held;
  } else if (batch == nullptr) {
    batch = ClaimGroupBatch();
  }
  if (batch != nullptr) batch->torn = true;
  thread.nccl_batch = batch;
}

bool NoteLaunchPastUs(ThreadState& thread, const SeenLaunch& launch) noexcept {
  if (thread.nccl_group_depth != 0 || HoldsCalls(thread)) NoteEndPastUs(thread);
  CallBatch* batch = Take(thread.nccl_ended);
  if (batch == nullptr) return false;
  if (IsComplete(*batch)) {
    thread.nccl_group_ended = false;
    Report(thread, batch);
    return false;
  }
  const bool carries = batch->call_count == 0 || CarriesSome(*batch, launch);
  if (carries && batch->launch_count == batch->launch_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
  } else if (carries) {
    batch->launches[batch->launch_count++] = launch;
  }
  thread.nccl_ended.store(batch, std::memory_order_release);
  return carries;
}

void NoteEndPastUs(ThreadState& thread) noexcept {
  ReportEndedGroup(thread);
  CallBatch* batch = thread.nccl_batch;
  thread.nccl_batch = nullptr;
  thread.nccl_group_depth = 0;
  // Calls held before are those of the same group.
  if (batch != nullptr && HoldsCalls(thread)) {
    if (!Hold(thread, *batch)) EmitBatch(thread, *batch);
    ReleaseGroupBatch(batch);
    batch = nullptr;
  }
  if (batch == nullptr) batch = Take(thread.nccl_held);
  if (batch == nullptr) return;
  batch->torn = true;
  NoteThread(thread, *batch);
  thread.nccl_ended.store(batch, std::memory_order_release);
  thread.nccl_group_ended = true;
}

void ReportEndedGroup(ThreadState& thread) noexcept {
  thread.nccl_group_ended = false;
  Report(thread, Take(thread.nccl_ended));
}

EndedGroup::EndedGroup(ThreadState& thread) noexcept : thread_(thread), batch_(Take(thread.nccl_ended)) {}

EndedGroup::~EndedGroup() {
  if (batch_ != nullptr) thread_.nccl_ended.store(batch_, std::memory_order_release);
}

void ReportEndedGroups(ThreadState& thread) noexcept {
  ForEachThread([&thread](ThreadState& other) noexcept {
    if (other.nccl_ended.load(std::memory_order_relaxed) == nullptr) {
      other.nccl_ended_looks = 0;
    } else if (++other.nccl_ended_looks > 1) {
      other.nccl_ended_looks = 0;
      Report(thread, Take(other.nccl_ended));
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
    Report(thread, Take(other.nccl_ended));
    Report(thread, Take(other.nccl_held));
  });
}

}  // namespace gpuprobe::injector::nccl
