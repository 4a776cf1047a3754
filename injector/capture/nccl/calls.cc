#include "injector/capture/nccl/calls.h"

#include <atomic>

namespace gpuprobe::injector::nccl {

namespace {

// 17 MB of zero pages that the kernel provides as they are written: a thread that groups a handful of calls
// touches two.
struct GroupBatch {
  std::atomic<bool> in_use;
  CallBatch batch;
  PendingCall calls[kGroupCalls];
  SeenLaunch launches[kGroupLaunches];
  PendingInit inits[kGroupInits];
  CallsBeyond beyond[kGroupBeyond];
};

constinit GroupBatch group_batches[kGroupBatches] = {};

}  // namespace

CallBatch* ClaimGroupBatch() noexcept {
  for (GroupBatch& group : group_batches) {
    bool expected = false;
    if (group.in_use.load(std::memory_order_relaxed) ||
        !group.in_use.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      continue;
    }
    group.batch = {.calls = group.calls,
                   .launches = group.launches,
                   .inits = group.inits,
                   .beyond = group.beyond,
                   .call_capacity = kGroupCalls,
                   .launch_capacity = kGroupLaunches,
                   .init_capacity = kGroupInits,
                   .call_count = 0,
                   .launch_count = 0,
                   .init_count = 0,
                   .beyond_count = 0};
    return &group.batch;
  }
  return nullptr;
}

void ReleaseGroupBatch(CallBatch* batch) noexcept {
  for (GroupBatch& group : group_batches) {
    if (&group.batch == batch) group.in_use.store(false, std::memory_order_release);
  }
}

}  // namespace gpuprobe::injector::nccl
