#include "injector/capture/nccl/captured_nodes.h"

#include <atomic>

namespace gpuprobe::injector::nccl {

namespace {

constexpr uint64_t kBusy = UINT64_MAX;

struct CapturedNode {
  std::atomic<uint64_t> node;  // 0: free; kBusy: being written
  std::atomic<uint64_t> plan;
  std::atomic<uint32_t> copy;
};

constinit CapturedNode table[kCapturedSets][kCapturedWays] = {};
constinit std::atomic<bool> any{false};

CapturedNode (&SetOf(uint64_t node) noexcept)[kCapturedWays] {
  return table[(node * 0x9e37'79b9'7f4a'7c15u) >> 52];
}
static_assert(kCapturedSets == 1u << 12);

}  // namespace

void RememberCaptured(uint64_t node, CapturedPlan carried) noexcept {
  if (node == 0 || node == kBusy) return;
  CapturedNode* oldest = nullptr;
  uint64_t oldest_node = kBusy;
  for (CapturedNode& place : SetOf(node)) {
    const uint64_t seen = place.node.load(std::memory_order_relaxed);
    if (seen >= oldest_node) continue;  // a free place is the oldest of all
    oldest = &place;
    oldest_node = seen;
  }
  // Another thread took the place meanwhile: its node is as new as ours, and one of the two is dropped.
  if (oldest == nullptr || !oldest->node.compare_exchange_strong(oldest_node, kBusy)) return;
  oldest->plan.store(carried.plan, std::memory_order_relaxed);
  oldest->copy.store(carried.copy, std::memory_order_relaxed);
  oldest->node.store(node, std::memory_order_release);
  any.store(true, std::memory_order_relaxed);
}

CapturedPlan PlanOfCaptured(uint64_t node) noexcept {
  if (node == 0 || node == kBusy) return {};
  for (const CapturedNode& place : SetOf(node)) {
    if (place.node.load(std::memory_order_acquire) != node) continue;
    const CapturedPlan carried{.plan = place.plan.load(std::memory_order_acquire),
                               .copy = place.copy.load(std::memory_order_acquire)};
    // Ids are never used twice: the same id before and after means that the plan is this node's.
    if (place.node.load(std::memory_order_relaxed) == node) return carried;
  }
  return {};
}

// Unique for each pair, except for one in 2^32: a child graph may hold children that were copied before.
uint32_t CopyOfCopy(uint32_t from, uint32_t call) noexcept {
  if (from == 0) return call;
  const auto mixed = static_cast<uint32_t>(((uint64_t{from} << 32 | call) * 0x9e37'79b9'7f4a'7c15u) >> 32);
  return mixed == 0 ? call : mixed;
}

bool AnyCaptured() noexcept { return any.load(std::memory_order_relaxed); }

}  // namespace gpuprobe::injector::nccl
