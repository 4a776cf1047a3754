#include "injector/capture/nccl/calls.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>

#include "injector/base/memory_account.h"

namespace gpuprobe::injector::nccl {

namespace {

// 18 MB of zero pages that the kernel provides as they are written: a thread that groups a handful of calls
// touches two. One that was in use is charged to the account for good.
struct GroupBatch {
  std::atomic<bool> in_use;
  bool charged;  // of whoever uses it
  CallBatch batch;
  PendingCall calls[kGroupCalls];
  SeenLaunch launches[kGroupLaunches];
  PendingInit inits[kGroupInits];
  CallsBeyond beyond[kGroupBeyond];
};

constinit GroupBatch group_batches[kGroupBatches] = {};

}  // namespace

size_t PrepareGroupBatches() noexcept {
  constexpr uintptr_t kPageBytes = 4096;
  const auto begin = (reinterpret_cast<uintptr_t>(group_batches) + kPageBytes - 1) & ~(kPageBytes - 1);
  const auto end = reinterpret_cast<uintptr_t>(group_batches + kGroupBatches) & ~(kPageBytes - 1);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the begin of a page
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NOHUGEPAGE);
  return sizeof(group_batches);
}

CallBatch* ClaimGroupBatch() noexcept {
  for (GroupBatch& group : group_batches) {
    bool expected = false;
    if (group.in_use.load(std::memory_order_relaxed) ||
        !group.in_use.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      continue;
    }
    if (!group.charged && !ChargeMemory(sizeof(group), MemoryUse::kOrdinary)) {
      group.in_use.store(false, std::memory_order_release);
      return nullptr;
    }
    group.charged = true;
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
