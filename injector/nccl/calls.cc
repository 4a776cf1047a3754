#include "injector/nccl/calls.h"

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
    group.batch = {group.calls, group.launches, group.inits, kGroupCalls, kGroupLaunches, kGroupInits, 0, 0,
                   0,           false};
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
