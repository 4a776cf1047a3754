#include "injector/base/losses.h"

#include <atomic>

namespace gpuprobe::injector {

namespace {

constinit std::atomic<uint64_t> counts[kLossReasons] = {};

std::atomic<uint64_t>& Counter(wire::LossReason reason) noexcept {
  const auto index = static_cast<uint32_t>(reason);
  return counts[index < kLossReasons ? index : 0];
}

}  // namespace

void CountLoss(wire::LossReason reason, uint64_t records) noexcept {
  Counter(reason).fetch_add(records, std::memory_order_relaxed);
}

uint64_t LossCount(wire::LossReason reason) noexcept {
  return Counter(reason).load(std::memory_order_relaxed);
}

}  // namespace gpuprobe::injector
