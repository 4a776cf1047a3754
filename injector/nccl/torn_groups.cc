#include "injector/nccl/torn_groups.h"

#include <algorithm>

#include "injector/nccl/patching.h"
#include "injector/nccl/plugin.h"
#include "injector/nccl/scopes.h"

namespace gpuprobe::injector::nccl {

namespace {

CallBatch* TakeHeld(ThreadState& thread) noexcept {
  if (thread.nccl_held.load(std::memory_order_relaxed) == nullptr) return nullptr;
  return thread.nccl_held.exchange(nullptr, std::memory_order_acquire);
}

void Report(ThreadState& thread, CallBatch* held) noexcept {
  if (held == nullptr) return;
  EmitBatch(thread, *held);
  ReleaseGroupBatch(held);
}

void Drop(CallBatch* batch) noexcept {
  for (uint32_t i = batch->call_count; i > 0; --i) ReturnSequence(batch->calls[i - 1]);
  ReleaseGroupBatch(batch);
}

}  // namespace

bool MayBeInTornGroup(const ThreadState& thread) noexcept {
  const uint32_t patches = LatePatches();
  return thread.nccl_patches_seen != patches || patches % 2 != 0;
}

void OutsideAllGroups(ThreadState& thread) noexcept {
  if (!MayBeInTornGroup(thread)) return;
  thread.nccl_patches_seen = LatePatches();
  Report(thread, TakeHeld(thread));
}

bool Hold(ThreadState& thread, const CallBatch& batch) noexcept {
  CallBatch* held = TakeHeld(thread);
  if (held == nullptr) held = ClaimGroupBatch();
  const bool fits = held != nullptr && held->call_capacity - held->call_count >= batch.call_count;
  if (fits) {
    std::copy_n(batch.calls, batch.call_count, held->calls + held->call_count);
    held->call_count += batch.call_count;
  }
  thread.nccl_held.store(held, std::memory_order_release);
  return fits;
}

CallBatch* TakeTornGroup(ThreadState& thread) noexcept {
  thread.nccl_patches_seen = LatePatches();
  CallBatch* held = TakeHeld(thread);
  if (held == nullptr || !PluginIsTold() || ApiIsTold()) return held;
  Drop(held);
  return nullptr;
}

void EndOfGroupWasMissed(ThreadState& thread) noexcept {
  if (!PluginIsTold()) return;
  if (thread.nccl_batch != nullptr) Drop(thread.nccl_batch);
  thread.nccl_batch = nullptr;
  thread.nccl_group_depth = 0;
}

void FlushHeld(ThreadState& thread) noexcept {
  ForEachThread([&thread](ThreadState& other) noexcept { Report(thread, TakeHeld(other)); });
}

}  // namespace gpuprobe::injector::nccl
