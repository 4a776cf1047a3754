#include "injector/capture/cupti/guest_calls.h"

#include "injector/base/futex.h"

namespace gpuprobe::injector::guest {

namespace {

constinit thread_local uint32_t own_calls __attribute__((tls_model("initial-exec"))) = 0;

}  // namespace

constinit Calls clock_calls;
constinit Calls calls;

// Threads' data lie at least a page apart.
Calls::Shard& Calls::Mine() noexcept {
  return shards_[(reinterpret_cast<uintptr_t>(&own_calls) >> 12) % kShards];
}

void Calls::Enter() noexcept { Mine().inside.fetch_add(1, std::memory_order_seq_cst); }

void Calls::Leave() noexcept {
  Mine().inside.fetch_sub(1, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return;
  left_.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&left_), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

uint32_t Calls::Inside() const noexcept {
  uint32_t inside = 0;
  for (const Shard& shard : shards_) inside += shard.inside.load(std::memory_order_seq_cst);
  return inside;
}

void Calls::AwaitOthers(uint32_t own) noexcept {
  if (Inside() <= own) return;
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  const int64_t deadline = MonotonicMs() + kLongestWaitMs;
  for (;;) {
    const uint32_t left = left_.load(std::memory_order_acquire);
    const int64_t rest = deadline - MonotonicMs();
    if (Inside() <= own || rest <= 0) break;
    FutexWait(left_, left, rest);
  }
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
}

uint32_t OwnCalls() noexcept { return own_calls; }

Call::Call() noexcept {
  ++own_calls;
  calls.Enter();
}

Call::~Call() {
  calls.Leave();
  --own_calls;
}

}  // namespace gpuprobe::injector::guest
