#include "injector/core/guard.h"

#include <cstddef>
#include <ctime>

#include "injector/base/losses.h"
#include "injector/base/own_memory.h"
#include "injector/core/program_memory.h"

namespace gpuprobe::injector {

namespace {

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

// True only if certain: entering while a guard is merely interrupted would write into a half-written event. A
// dead guard deeper in the stack than the thread has been since stays shut until then, and refused records
// are counted.
bool Guard::IsDead(ThreadState& state, const void* open) noexcept {
  if (open == &kNoEntry) return false;
  // The stack that it was on, a fiber's, may be gone.
  uintptr_t mark = 0;
  const void* place = static_cast<const char*>(open) + offsetof(Guard, mark_);
  const ReadResult read = open == this ? ReadResult::kGone : ReadMemory(place, &mark, sizeof(mark));
  if (read == ReadResult::kUnsupported) return false;
  if (read == ReadResult::kRead && mark == MarkAt(open) && !IsBelowOwnStackInUse(state, open)) return false;
  state.sample_start_ns = 0;
  CountLoss(wire::LossReason::kLossInterrupted);  // the event that it was about to record
  return true;
}

void CountRefused(uint64_t records) noexcept {
  if (CurrentLifecycle() != LifecycleState::kLive) return;
  const ThreadState& state = CurrentThread();
  const void* open = state.open_guard.load(std::memory_order_relaxed);
  if (state.tid == 0) {
    CountLoss(wire::LossReason::kLossThreadSlotsFull, records);
  } else if (open != nullptr && open != &kNoEntry && !state.asks_library) {
    CountLoss(wire::LossReason::kLossInterrupted, records);
  }
}

void Guard::StartSample() noexcept { state_->sample_start_ns = MonotonicNs(); }

void Guard::EndSample() noexcept {
  const uint64_t spent = MonotonicNs() - state_->sample_start_ns;
  state_->sample_start_ns = 0;
  const uint64_t judged = spent < kMaxJudgedNs ? spent : kMaxJudgedNs;
  state_->host_judged_ns.store(state_->host_judged_ns.load(std::memory_order_relaxed) + judged,
                               std::memory_order_relaxed);
  if (spent == judged) return;
  state_->host_interrupted_ns.store(
      state_->host_interrupted_ns.load(std::memory_order_relaxed) + spent - judged,
      std::memory_order_relaxed);
}

uint64_t NowNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpuprobe::injector
