#include "injector/stream/event_drain.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "injector/parts.h"
#include "injector/recording.h"
#include "injector/stream/losses.h"
#include "injector/stream/self_report.h"
#include "injector/stream/text.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kNever = UINT64_MAX;

template <typename Event>
Event Payload(const EventHeader& header) noexcept {
  Event event;
  std::memcpy(&event, &header + 1, sizeof(event));
  return event;
}

template <typename Event>
std::string_view Text(const EventHeader& header) noexcept {
  return {reinterpret_cast<const char*>(&header + 1) + sizeof(Event), header.text_bytes};
}

// When the event was published: collectives report when they return, and name both times.
uint64_t EventTime(const EventHeader& header) noexcept {
  switch (static_cast<EventType>(header.type)) {
    case EventType::kCollective:
      return Payload<CollectiveEvent>(header).return_ns;
    case EventType::kPlanLaunch:
      return 0;  // has no time and needs no order
    default:
      break;
  }
  uint64_t time_ns = 0;  // every other event starts with it
  std::memcpy(&time_ns, &header + 1, sizeof(time_ns));
  return time_ns;
}

uint32_t RecordKindOf(EventType type) noexcept {
  switch (type) {
    case EventType::kRangeOpen:
    case EventType::kRangeClose:
    case EventType::kMark:
      return kRecordNvtx;
    case EventType::kAllocation:
      return kRecordMemory;
    case EventType::kCollective:
    case EventType::kPlanLaunch:
    case EventType::kCommunicator:
      return kRecordNccl;
    default:
      return kRecordAll;
  }
}

// The thread's name as it is now: threads are often named after their first event. Empty when it has ended.
size_t LiveThreadName(uint32_t tid, char* out, size_t capacity) noexcept {
  TextBuffer<64> path;
  path.Add("/proc/self/task/").AddNumber(tid).Add("/comm");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t got = read(fd, out, capacity);
  close(fd);
  size_t length = got > 0 ? static_cast<size_t>(got) : 0;
  if (length > 0 && out[length - 1] == '\n') --length;
  return length;
}

}  // namespace

void EventDrain::MeetThread(int slot, const EventRing& ring) noexcept {
  if (known_thread_[slot] == ring.thread_id()) return;
  known_thread_[slot] = ring.thread_id();
  char name[32];
  size_t length = LiveThreadName(ring.tid(), name, sizeof(name));
  if (length == 0) {
    length = strnlen(ring.name(), 16);
    std::memcpy(name, ring.name(), length);
  }
  builder_->DefineThread(ring.thread_id(), ring.tid(), {name, length},
                         ring.tid() == static_cast<uint32_t>(getpid()));
}

// Launches need no order among threads and are most of the traffic: one pass over the ring takes them all,
// the merge skips them.
void EventDrain::TakeLaunches(int slot, EventRing& ring, uint64_t until_ns, Cursor* cursor) noexcept {
  const uint64_t end = ring.PublishedEnd();
  uint64_t position = ring.ReadPosition();
  *cursor = {&ring, position, position, kNever};
  bool met = false;
  while (const EventHeader* header = ring.Peek(&position, end)) {
    if (EventTime(*header) >= until_ns) break;
    if (!met) MeetThread(slot, ring);
    met = true;
    if (static_cast<EventType>(header->type) == EventType::kLaunch) {
      Launched(Payload<LaunchEvent>(*header), ring.thread_id());
    }
    position += header->total_bytes;
    cursor->end = position;
  }
}

void EventDrain::Launched(LaunchEvent event, uint32_t thread) noexcept {
  if (!recording.HoldsLaunch(event.time_ns)) return CountSelf(SelfCounter::kOutsideWindow);
  if (!recording.Wants(kRecordNvtx)) event.range_id = event.fallback_range_id = 0;
  builder_->AddLaunch(thread, event);
}

void EventDrain::Advance(Cursor* cursor, uint64_t until_ns) noexcept {
  while (const EventHeader* header = cursor->ring->Peek(&cursor->position, cursor->end)) {
    if (static_cast<EventType>(header->type) != EventType::kLaunch) {
      const uint64_t time_ns = EventTime(*header);
      if (time_ns > until_ns) {
        cursor->next_ns = time_ns;
        return;
      }
      Take(*header, cursor->ring->thread_id());
    }
    cursor->position += header->total_bytes;
  }
  cursor->next_ns = kNever;
}

void EventDrain::Drain(uint64_t until_ns) noexcept {
  Cursor cursors[kRingSlots];
  int count = 0;
  for (int slot = 0; slot < kRingSlots; ++slot) {
    EventRing& ring = RingAt(slot);
    const EventRing::Slot state = ring.slot();
    if (state != EventRing::Slot::kOwned && state != EventRing::Slot::kReleased) continue;
    Cursor& cursor = cursors[count];
    TakeLaunches(slot, ring, until_ns, &cursor);
    if (cursor.end == cursor.position) {
      if (state == EventRing::Slot::kReleased && ring.PublishedEnd() == ring.ReadPosition()) FreeRing(ring);
      continue;
    }
    cursor.next_ns = 0;
    ++count;
  }
  // Merge by time, in runs: the thread that is furthest back goes on until it passes the next one.
  for (;;) {
    int first = -1;
    uint64_t first_ns = kNever;
    uint64_t second_ns = kNever;
    for (int i = 0; i < count; ++i) {
      if (cursors[i].next_ns < first_ns) {
        second_ns = first_ns;
        first_ns = cursors[i].next_ns;
        first = i;
      } else if (cursors[i].next_ns < second_ns) {
        second_ns = cursors[i].next_ns;
      }
    }
    if (first < 0) break;
    Advance(&cursors[first], second_ns == kNever ? kNever - 1 : second_ns);
  }
  for (int i = 0; i < count; ++i) cursors[i].ring->Consume(cursors[i].end);
}

void EventDrain::Take(const EventHeader& header, uint32_t thread) noexcept {
  if (!recording.Wants(RecordKindOf(static_cast<EventType>(header.type)))) return;
  switch (static_cast<EventType>(header.type)) {
    case EventType::kLaunch:
      return;
    case EventType::kRangeOpen:
      return OpenedRange(Payload<RangeOpenEvent>(header), Text<RangeOpenEvent>(header), thread);
    case EventType::kRangeClose:
      return ClosedRange(Payload<RangeCloseEvent>(header));
    case EventType::kMark:
      return Marked(Payload<MarkEvent>(header), Text<MarkEvent>(header), thread);
    case EventType::kAllocation:
      return Allocated(Payload<AllocationEvent>(header), thread);
    case EventType::kCollective:
      return Collective(Payload<CollectiveEvent>(header), thread);
    case EventType::kPlanLaunch:
      return builder_->AddPlanLaunch(Payload<PlanLaunchEvent>(header));
    case EventType::kCommunicator:
      return builder_->DefineCommunicator(Payload<CommunicatorEvent>(header));
  }
  CountLoss(wire::LossReason::kLossUnknownRecord);
}

uint32_t EventDrain::DomainName(uint64_t handle) noexcept {
  if (handle == 0 || event_names.range_domain == nullptr) return 0;
  char name[kMaxNameBytes];
  const size_t length = event_names.range_domain(handle, name, sizeof(name));
  return builder_->String({name, length < sizeof(name) ? length : sizeof(name)});
}

void EventDrain::AddRange(const RangeRow& row) noexcept {
  if (!recording.Overlaps(row.start_ns, row.end_ns)) return CountSelf(SelfCounter::kOutsideWindow);
  builder_->AddRange(row);
}

void EventDrain::OpenedRange(const RangeOpenEvent& event, std::string_view name, uint32_t thread) noexcept {
  const OpenRange range{.start_ns = event.time_ns,
                        .parent_id = event.parent_id,
                        .name = builder_->String(name),
                        .domain = DomainName(event.domain),
                        .thread = thread,
                        .category = event.category,
                        .kind = event.kind};
  if (open_ranges_.Insert(event.id, range) == nullptr) {
    CountLoss(wire::LossReason::kLossDefinitionsFull);
    return;
  }
  const uint64_t* end_ns = early_closes_.Find(event.id);
  if (end_ns == nullptr) return;
  const RangeCloseEvent close{*end_ns, event.id};
  early_closes_.Erase(event.id);
  ClosedRange(close);
}

void EventDrain::ClosedRange(const RangeCloseEvent& event) noexcept {
  const OpenRange* range = open_ranges_.Find(event.id);
  if (range == nullptr) {
    // Closed by another thread, whose event overtook the opening one.
    if (early_closes_.Insert(event.id, event.time_ns) == nullptr)
      CountLoss(wire::LossReason::kLossDefinitionsFull);
    return;
  }
  AddRange({.start_ns = range->start_ns,
            .end_ns = event.time_ns > range->start_ns ? event.time_ns : range->start_ns,
            .id = event.id,
            .parent_id = range->parent_id,
            .name = range->name,
            .domain = range->domain,
            .thread = range->thread,
            .category = range->category,
            .kind = static_cast<wire::RangeKind>(range->kind),
            .unclosed = false});
  open_ranges_.Erase(event.id);
}

void EventDrain::Marked(const MarkEvent& event, std::string_view name, uint32_t thread) noexcept {
  const uint32_t name_id = builder_->String(name);
  const uint32_t domain = DomainName(event.domain);
  AddRange({.start_ns = event.time_ns,
            .end_ns = event.time_ns,
            .id = event.id,
            .parent_id = event.parent_id,
            .name = name_id,
            .domain = domain,
            .thread = thread,
            .category = event.category,
            .kind = wire::RangeKind::kRangeKindMark,
            .unclosed = false});
}

void EventDrain::Allocated(AllocationEvent event, uint32_t thread) noexcept {
  if (static_cast<wire::AllocationOp>(event.op) == wire::AllocationOp::kAllocationOpAlloc) {
    if (event.failed == 0 && event.address != 0 &&
        live_memory_.Insert(event.address, {event.bytes, event.device, event.memory}) == nullptr) {
      CountLoss(wire::LossReason::kLossDefinitionsFull);
    }
  } else if (event.failed == 0) {
    const LiveMemory* memory = live_memory_.Find(event.address);
    if (memory == nullptr) {
      if (event.bytes == 0) CountLoss(wire::LossReason::kLossAllocationUnknown);
    } else {
      event.bytes = memory->bytes;
      event.device = memory->device;
      event.memory = memory->memory;
      live_memory_.Erase(event.address);
    }
  }
  builder_->AddAllocation(event, thread);
}

void EventDrain::Collective(const CollectiveEvent& event, uint32_t thread) noexcept {
  if (!recording.Holds(event.issue_ns)) return CountSelf(SelfCounter::kOutsideWindow);
  const char* op = event_names.collective_op == nullptr ? nullptr : event_names.collective_op(event.op);
  const char* datatype =
      event_names.collective_datatype == nullptr ? nullptr : event_names.collective_datatype(event.datatype);
  const uint32_t op_id = op == nullptr ? 0 : builder_->String(op);
  const uint32_t datatype_id = datatype == nullptr ? 0 : builder_->String(datatype);
  builder_->AddCollective(event, op_id, datatype_id, thread);
}

void EventDrain::CloseOpenRanges(uint64_t now_ns) noexcept {
  open_ranges_.ForEach([this, now_ns](uint64_t id, const OpenRange& range) {
    AddRange({.start_ns = range.start_ns,
              .end_ns = now_ns > range.start_ns ? now_ns : range.start_ns,
              .id = id,
              .parent_id = range.parent_id,
              .name = range.name,
              .domain = range.domain,
              .thread = range.thread,
              .category = range.category,
              .kind = static_cast<wire::RangeKind>(range.kind),
              .unclosed = true});
  });
  open_ranges_.Clear();
}

}  // namespace gpuprobe::injector
