#include "injector/guard.h"

#include <cerrno>
#include <ctime>

#include "injector/lifecycle.h"

namespace gpuprobe::injector {

namespace {

// One event in this many is timed, so that measuring costs less than a nanosecond an event.
constexpr uint64_t kSampling = kHostCostSampling;

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

Guard::Guard() noexcept {
  if (CurrentLifecycle() != LifecycleState::kLive) return;
  ThreadState& state = CurrentThread();
  if (state.guard_depth != 0) return;
  state.guard_depth = 1;
  state_ = &state;
  saved_errno_ = errno;
  const uint64_t events = state.host_events.load(std::memory_order_relaxed);
  state.host_events.store(events + 1, std::memory_order_relaxed);
  // Not the first of a thread: that one pays for page faults that no other pays.
  if (events % kSampling == kSampling - 1) state.sample_start_ns = MonotonicNs();
}

Guard::~Guard() {
  if (state_ == nullptr) return;
  if (state_->sample_start_ns != 0) {
    const uint64_t spent = MonotonicNs() - state_->sample_start_ns;
    state_->sample_start_ns = 0;
    state_->host_sampled_ns.store(state_->host_sampled_ns.load(std::memory_order_relaxed) + spent,
                                  std::memory_order_relaxed);
  }
  state_->guard_depth = 0;
  errno = saved_errno_;
}

uint64_t NowNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpuprobe::injector
