#include "injector/capture/nccl/thread_calls.h"

#include <utility>

namespace gpuprobe::injector::nccl {

CallBatch* BatchOfGroup(ThreadCalls& calls) noexcept {
  if (calls.batch == nullptr) calls.batch = ClaimGroupBatch();
  return calls.batch;
}

CallBatch* TakeBatch(ThreadCalls& calls) noexcept { return std::exchange(calls.batch, nullptr); }

void StartLevel(ThreadCalls& calls) noexcept {
  ++calls.depth;
  if (!HoldsCalls(calls)) calls.state = GroupState::kOpen;
}

bool EndLevel(ThreadCalls& calls) noexcept {
  // NCCL launches at the outermost end: an end between was missed.
  const bool launched = calls.batch != nullptr && calls.batch->launch_count != 0;
  calls.depth = launched ? 0 : calls.depth - 1;
  if (InGroup(calls)) return false;
  if (!HoldsCalls(calls)) calls.state = GroupState::kNone;
  return true;
}

CallBatch* LeaveGroup(ThreadCalls& calls) noexcept {
  calls.depth = 0;
  if (!HoldsCalls(calls)) calls.state = GroupState::kNone;
  return TakeBatch(calls);
}

void HoldCalls(ThreadCalls& calls, CallBatch* held) noexcept {
  calls.held.store(held, std::memory_order_release);
  if (held != nullptr) calls.state = GroupState::kTorn;
}

CallBatch* TakeHeld(ThreadCalls& calls) noexcept {
  if (HoldsCalls(calls)) calls.state = InGroup(calls) ? GroupState::kOpen : GroupState::kNone;
  return Take(calls.held);
}

bool OpenTornGroup(ThreadCalls& calls) noexcept {
  calls.batch = TakeHeld(calls);
  if (calls.batch == nullptr) return false;
  StartLevel(calls);
  return true;
}

void BeginReported(ThreadCalls& calls) noexcept { calls.state = GroupState::kReported; }

CallBatch* EndReported(ThreadCalls& calls, Awaited** awaited) noexcept {
  calls.state = GroupState::kNone;
  *awaited = std::exchange(calls.awaited, nullptr);
  return TakeBatch(calls);
}

void EndPastUs(ThreadCalls& calls, CallBatch* batch) noexcept {
  calls.ended.store(batch, std::memory_order_release);
  calls.state = GroupState::kEndedPastUs;
}

void ForgetEnded(ThreadCalls& calls) noexcept {
  if (EndedPastUs(calls)) calls.state = GroupState::kNone;
}

CallBatch* Take(std::atomic<CallBatch*>& place) noexcept {
  if (place.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return place.exchange(nullptr, std::memory_order_acquire);
}

void EndThread(ThreadState& thread) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  if (calls.ended.load(std::memory_order_relaxed) == nullptr)
    calls.ended.store(calls.held.exchange(nullptr), std::memory_order_release);
  const bool holds = calls.held.load(std::memory_order_relaxed) != nullptr;
  calls.state = holds ? GroupState::kTorn : GroupState::kNone;
  calls.end_due = false;
  calls.depth = 0;
  calls.patches_seen = 0;
  calls.batch = nullptr;
  calls.awaited = nullptr;
  calls.bypassing = {};
  calls.copies = {};
  calls.served = nullptr;
}

}  // namespace gpuprobe::injector::nccl
