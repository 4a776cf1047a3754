// Maps the nodes of CUDA graphs to their plans: node id -> plan, and which copy of a child graph it is in.
//
// It outlives the batches: a graph is instantiated, copied and launched long after its calls were captured.
// Thread: any application thread, inside the guard. Allocation: none; 384 KB of zero pages. Failure: nothing
// removes a node, since a destroyed graph's ids never come back; when a set of the table is full, its oldest
// node (ids ascend) is evicted. A later copy of such a node has no plan: its kernels are known only by name.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kCapturedSets = 4096;
inline constexpr uint32_t kCapturedWays = 4;

struct CapturedPlan {
  uint64_t plan = 0;  // 0: the node carries none, or none that is remembered
  uint32_t copy = 0;  // as PlanLaunchEvent::copy
};

void RememberCaptured(uint64_t node, CapturedPlan carried) noexcept;
CapturedPlan PlanOfCaptured(uint64_t node) noexcept;

// Which copy a node is of that `call`, a correlation id, copies into a graph from a node of the copy `from`.
uint32_t CopyOfCopy(uint32_t from, uint32_t call) noexcept;

// False until something was captured: what most programs pay for each node.
bool AnyCaptured() noexcept;

}  // namespace gpuprobe::injector::nccl
