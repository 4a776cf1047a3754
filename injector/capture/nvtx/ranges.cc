#include "injector/capture/nvtx/ranges.h"

#include <unistd.h>

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/base/text.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector::nvtx {

namespace {

constinit std::atomic<uint64_t> last_id{0};

// Id of the process that loaded the library; the guard does not let a forked child in.
const uint32_t kProcessId = static_cast<uint32_t>(getpid());

uint64_t NewId() noexcept { return last_id.fetch_add(1, std::memory_order_relaxed) + 1; }

// The "main training thread" is the process's main thread; other threads' ranges are found only through their
// own stacks.
void PublishMainThread(const ThreadState& thread) noexcept {
  if (thread.tid == kProcessId) main_thread_range.store(InnermostRange(thread), std::memory_order_relaxed);
}

// Innermost range that has a record: ranges that were opened while the probe was off have none.
uint64_t ParentOf(const ThreadState& thread) noexcept {
  for (int i = std::min(thread.range_depth, kMaxRangeDepth) - 1; i >= 0; --i) {
    if (thread.range_ids[i] != 0) return thread.range_ids[i];
  }
  return 0;
}

void EmitOpen(ThreadState& thread, void* domain, const RangeText& what, uint64_t id, uint64_t parent,
              wire::RangeKind kind) noexcept {
  const std::string_view text = Slice(what.text, 0, kMaxNameBytes);
  RangeOpenEvent event{};
  event.id = id;
  event.parent_id = parent;
  event.domain = reinterpret_cast<uint64_t>(domain);
  event.category = what.category;
  event.kind = static_cast<uint16_t>(kind);
  event.name_bytes = static_cast<uint16_t>(text.size());
  event.payload = what.payload;
  event.color = what.color;
  event.payload_kind = static_cast<uint32_t>(what.payload_kind);
  event.time_ns = Stamp();
  Emit(thread, event, text);
}

// As many bytes as the layout has, copied.
void EmitPayloads(ThreadState& thread, void* domain, uint64_t id, const abi::PayloadData* data,
                  size_t count) noexcept {
  for (size_t i = 0; data != nullptr && i < std::min<size_t>(count, kMaxPayloads); ++i) {
    const PayloadBytes payload = FindPayload(domain, data[i]);
    if (payload.size == 0) continue;
    Emit(thread, RangePayloadEvent{Stamp(), id, payload.schema, 0},
         {static_cast<const char*>(payload.bytes), payload.size});
  }
}

int LevelIn(const ThreadState& thread, uint16_t domain) noexcept {
  const int kept = std::min(thread.range_depth, kMaxRangeDepth);
  const auto level = std::count(thread.range_domains, thread.range_domains + kept, domain);
  return static_cast<int>(level) + (thread.range_depth - kept);
}

// Takes the innermost range of `domain` off the stack. False when there is none.
bool TakeOff(ThreadState& thread, uint16_t domain, uint64_t* id) noexcept {
  *id = 0;
  if (thread.range_depth > kMaxRangeDepth) {
    // What lies beyond the stack is a number only: popped first, whatever its domain was.
    --thread.range_depth;
    return true;
  }
  for (int i = thread.range_depth - 1; i >= 0; --i) {
    if (thread.range_domains[i] != domain) continue;
    *id = thread.range_ids[i];
    std::copy(thread.range_ids + i + 1, thread.range_ids + thread.range_depth, thread.range_ids + i);
    std::copy(thread.range_domains + i + 1, thread.range_domains + thread.range_depth,
              thread.range_domains + i);
    --thread.range_depth;
    return true;
  }
  return false;
}

}  // namespace

int Push(void* domain, const RangeText& what) noexcept {
  ThreadState& thread = CurrentThread();
  if (thread.tid == 0) return 0;  // shared by the threads beyond the limit
  const uint16_t index = DomainIndex(domain);
  const int level = LevelIn(thread, index);
  Guard guard;
  if (thread.range_depth >= kMaxRangeDepth) {
    ++thread.range_depth;
    if (guard) CountLoss(wire::LossReason::kLossDefinitionsFull);
    return level;
  }
  const uint64_t parent = ParentOf(thread);
  const uint64_t id = guard ? NewId() : 0;
  thread.range_ids[thread.range_depth] = id;
  thread.range_domains[thread.range_depth] = index;
  ++thread.range_depth;
  if (!guard) return level;
  if (step_gate.watches_ranges()) step_gate.Opened(thread.tid, id, Slice(what.text, 0, kMaxNameBytes));
  EmitOpen(thread, domain, what, id, parent, wire::RangeKind::kRangeKindPushPop);
  if (what.extended_count != 0) EmitPayloads(thread, domain, id, what.extended, what.extended_count);
  PublishMainThread(thread);
  return level;
}

int Pop(void* domain) noexcept {
  ThreadState& thread = CurrentThread();
  if (thread.tid == 0) return 0;
  const uint16_t index = DomainIndex(domain);
  uint64_t id = 0;
  Guard guard;
  if (!TakeOff(thread, index, &id)) {
    if (guard) CountSelf(SelfCounter::kRangePopWithoutPush);
    return -1;
  }
  const int level = LevelIn(thread, index);
  PublishMainThread(thread);
  if (id != 0 && step_gate.watches_ranges()) step_gate.Closed(id);
  if (guard && id != 0) Emit(thread, RangeCloseEvent{Stamp(), id});
  return level;
}

uint64_t Start(void* domain, const RangeText& what) noexcept {
  Guard guard;
  if (!guard) return 0;
  const uint64_t id = NewId();
  if (step_gate.watches_ranges()) {
    step_gate.Opened(guard.thread().tid, id, Slice(what.text, 0, kMaxNameBytes));
  }
  EmitOpen(guard.thread(), domain, what, id, ParentOf(guard.thread()), wire::RangeKind::kRangeKindStartEnd);
  if (what.extended_count != 0) EmitPayloads(guard.thread(), domain, id, what.extended, what.extended_count);
  return OpenRange(id);
}

void End(uint64_t program_id) noexcept {
  Guard guard;
  if (!guard || program_id == 0) return;  // 0: started while the probe was off
  const uint64_t id = CloseRange(program_id);
  if (id == 0) {
    CountSelf(SelfCounter::kRangeEndWithoutStart);
    return;
  }
  if (step_gate.watches_ranges()) step_gate.Closed(id);
  Emit(guard.thread(), RangeCloseEvent{Stamp(), id});
}

void Mark(void* domain, const RangeText& what) noexcept {
  Guard guard;
  if (!guard) return;
  const std::string_view text = Slice(what.text, 0, kMaxNameBytes);
  MarkEvent event{};
  event.id = NewId();
  event.parent_id = ParentOf(guard.thread());
  event.domain = reinterpret_cast<uint64_t>(domain);
  event.category = what.category;
  event.name_bytes = static_cast<uint16_t>(text.size());
  event.payload = what.payload;
  event.color = what.color;
  event.payload_kind = static_cast<uint32_t>(what.payload_kind);
  event.time_ns = Stamp();
  Emit(guard.thread(), event, text);
  if (what.extended_count != 0)
    EmitPayloads(guard.thread(), domain, event.id, what.extended, what.extended_count);
}

void AddPayloads(void* domain, uint64_t id, const abi::PayloadData* extended, size_t count) noexcept {
  Guard guard;
  if (!guard) return;
  ThreadState& thread = guard.thread();
  const uint16_t index = DomainIndex(domain);
  for (int i = std::min(thread.range_depth, kMaxRangeDepth) - 1; i >= 0 && id == 0; --i) {
    if (thread.range_domains[i] == index) id = thread.range_ids[i];
  }
  if (id != 0) EmitPayloads(thread, domain, IdOfOpen(id), extended, count);
}

}  // namespace gpuprobe::injector::nvtx
