#include "injector/capture/nvtx/ranges.h"

#include <unistd.h>

#include <algorithm>

#include "injector/base/losses.h"
#include "injector/capture/nvtx/domains.h"
#include "injector/capture/nvtx/payloads.h"
#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/program_memory.h"
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

// False: the range has no record.
bool EmitOpen(ThreadState& thread, void* domain, const RangeText& what, uint64_t id, uint64_t parent,
              wire::RangeKind kind, uint64_t now) noexcept {
  RangeOpenEvent event{};
  event.id = id;
  event.parent_id = parent;
  event.domain = reinterpret_cast<uint64_t>(domain);
  event.category = what.category;
  event.kind = static_cast<uint16_t>(kind);
  event.name_bytes = static_cast<uint16_t>(what.text.size());
  event.payload = what.payload;
  event.color = what.color;
  event.payload_kind = static_cast<uint32_t>(what.payload_kind);
  event.time_ns = now;
  return Emit(thread, event, what.text);
}

// As many bytes as the layout has, copied.
void EmitPayloads(ThreadState& thread, void* domain, uint64_t id, const abi::PayloadData* data,
                  size_t count) noexcept {
  for (size_t i = 0; data != nullptr && i < std::min<size_t>(count, kMaxPayloads); ++i) {
    abi::PayloadData passed;
    char bytes[kMaxPayloadBytes];
    if (!CopyFromProgram(thread, data + i, &passed, sizeof(passed)))
      return CountLoss(wire::LossReason::kLossUnreadable);
    const PayloadBytes payload = FindPayload(domain, passed);
    if (payload.size == 0) continue;
    if (!CopyFromProgram(thread, payload.bytes, bytes, payload.size)) {
      CountLoss(wire::LossReason::kLossUnreadable);
      continue;
    }
    Emit(thread, RangePayloadEvent{Stamp(), id, payload.schema, 0}, {bytes, payload.size});
  }
}

int LevelIn(const ThreadState& thread, uint16_t domain) noexcept {
  const int kept = std::min(thread.range_depth, kMaxRangeDepth);
  const auto level = std::count(thread.range_domains, thread.range_domains + kept, domain);
  return static_cast<int>(level) + (thread.range_depth - kept);
}

// Takes the innermost range of `domain` off the stack, and says where it was. False when there is none.
bool TakeOff(ThreadState& thread, uint16_t domain, uint64_t* id, int* place) noexcept {
  *id = 0;
  *place = thread.range_depth - 1;
  if (thread.range_depth > kMaxRangeDepth) {
    // What lies beyond the stack is a number only: popped first, whatever its domain was.
    --thread.range_depth;
    return true;
  }
  for (int i = thread.range_depth - 1; i >= 0; --i) {
    if (thread.range_domains[i] != domain) continue;
    *id = thread.range_ids[i];
    *place = i;
    std::copy(thread.range_ids + i + 1, thread.range_ids + thread.range_depth, thread.range_ids + i);
    std::copy(thread.range_domains + i + 1, thread.range_domains + thread.range_depth,
              thread.range_domains + i);
    --thread.range_depth;
    return true;
  }
  return false;
}

// At level calls: a range that has the marker's name was opened.
void TraceStep(ThreadState& thread, uint64_t now) noexcept {
  if (uint64_t step = 0; step_gate.TakeBegun(&step)) Emit(thread, TracedStepEvent{now, step});
}

}  // namespace

int Push(void* domain, const Passed& passed) noexcept {
  ThreadState& thread = CurrentThread();
  if (thread.tid == 0) {  // shared by the threads beyond the limit
    CountRefused();
    return 0;
  }
  const uint16_t index = DomainIndex(domain);
  const int level = LevelIn(thread, index);
  Guard guard;
  if (!guard) CountRefused();
  const int place = thread.range_depth++;
  // From here on, a signal handler's ranges lie above this one.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (place >= kMaxRangeDepth) {
    if (guard) CountLoss(wire::LossReason::kLossDefinitionsFull);
    return level;
  }
  thread.range_ids[place] = 0;
  thread.range_domains[place] = index;
  if (!guard) return level;
  RangeText what;
  passed.read(thread, passed, &what);
  const uint64_t id = NewId();
  const bool marks = step_gate.watches_ranges() && step_gate.Opened(thread.tid, id, what.text);
  const uint64_t now = Stamp();
  if (marks) TraceStep(thread, now);
  RecordRangeOpened(thread, place, what.text, now);
  if (step_gate.rests() && !marks) return level;
  if (!EmitOpen(thread, domain, what, id, InnermostRange(thread), wire::RangeKind::kRangeKindPushPop, now))
    return level;
  thread.range_ids[place] = id;
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
  int place = 0;
  if (!TakeOff(thread, index, &id, &place)) {
    if (guard) CountSelf(SelfCounter::kRangePopWithoutPush);
    return -1;
  }
  const int level = LevelIn(thread, index);
  PublishMainThread(thread);
  if (id != 0 && step_gate.watches_ranges()) step_gate.Closed(id);
  if (!guard) return level;
  const uint64_t now = Stamp();
  RecordRangeClosed(thread, place, now);
  if (id != 0) Emit(thread, RangeCloseEvent{now, id});
  return level;
}

uint64_t Start(void* domain, const Passed& passed) noexcept {
  Guard guard;
  if (!guard) {
    CountRefused();
    return 0;
  }
  ThreadState& thread = guard.thread();
  RangeText what;
  passed.read(thread, passed, &what);
  const uint64_t id = NewId();
  const bool marks = step_gate.watches_ranges() && step_gate.Opened(thread.tid, id, what.text);
  if (marks) TraceStep(thread, Stamp());
  if (step_gate.rests() && !marks) return 0;
  if (!EmitOpen(thread, domain, what, id, InnermostRange(thread), wire::RangeKind::kRangeKindStartEnd,
                Stamp()))
    return 0;
  if (what.extended_count != 0) EmitPayloads(thread, domain, id, what.extended, what.extended_count);
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

void Mark(void* domain, const Passed& passed) noexcept {
  if (step_gate.rests()) return;
  Guard guard;
  if (!guard) return CountRefused();
  ThreadState& thread = guard.thread();
  RangeText what;
  passed.read(thread, passed, &what);
  MarkEvent event{};
  event.id = NewId();
  event.parent_id = InnermostRange(thread);
  event.domain = reinterpret_cast<uint64_t>(domain);
  event.category = what.category;
  event.name_bytes = static_cast<uint16_t>(what.text.size());
  event.payload = what.payload;
  event.color = what.color;
  event.payload_kind = static_cast<uint32_t>(what.payload_kind);
  event.time_ns = Stamp();
  if (Emit(thread, event, what.text) && what.extended_count != 0)
    EmitPayloads(thread, domain, event.id, what.extended, what.extended_count);
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
