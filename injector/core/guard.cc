#include "injector/core/guard.h"

#include <ctime>

namespace gpuprobe::injector {

namespace {

uint64_t MonotonicNs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

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
