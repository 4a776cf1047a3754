#include "injector/ledgers/event_drain.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "injector/base/losses.h"
#include "injector/base/own_descriptor.h"
#include "injector/base/text.h"
#include "injector/core/event_names.h"
#include "injector/core/host_clock.h"
#include "injector/core/host_state.h"
#include "injector/core/recording.h"
#include "injector/core/self_report.h"
#include "injector/core/step_gate.h"
#include "injector/ledgers/event_rows.h"
#include "injector/ledgers/operator_name.h"

namespace gpuprobe::injector {

namespace {

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

// A stamp that is this much earlier than the one before it on its thread is as late: the errors of two
// readings, or of the counter and the kernel's clock where one took over from the other.
constexpr uint64_t kStampJitterNs = 10'000;
// A launch that takes longer waits: for room in the stream's queue, or for its module to be loaded.
constexpr uint64_t kMaxLaunchNs = 20'000;

uint64_t& StampAt(EventHeader& header, size_t offset) noexcept {
  return *reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(&header + 1) + offset);
}

// When the event was published: collectives report when they return, and name both times.
uint64_t EventTime(const EventHeader& header) noexcept {
  switch (static_cast<EventType>(header.type)) {
    case EventType::kCollective:
      return Payload<CollectiveEvent>(header).return_ns;
    case EventType::kPlanLaunch:
    case EventType::kThreadBegins:
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
    case EventType::kRangePayload:
      return kRecordNvtx;
    case EventType::kAllocation:
    case EventType::kPhysicalMemory:
    case EventType::kGraphMemoryNode:
    case EventType::kTensor:
      return kRecordMemory;
    case EventType::kCollective:
    case EventType::kPlanLaunch:
    case EventType::kCommunicator:
    case EventType::kGraphNode:
    case EventType::kCallTime:
      return kRecordNccl;
    case EventType::kDriverCall:
      return kRecordDriver;
    default:
      return kRecordAll;
  }
}

// The thread's name as it is now: threads are often named after their first event. Empty when it has ended.
size_t LiveThreadName(uint32_t tid, char* out, size_t capacity) noexcept {
  TextBuffer<64> path;
  path.Add("/proc/self/task/").AddNumber(tid).Add("/comm");
  size_t length = ReadOwnFile(path.c_str(), out, capacity);
  if (length > 0 && out[length - 1] == '\n') --length;
  return length;
}

}  // namespace

EventDrain::GivenName* EventDrain::GivenNameOf(uint32_t tid) noexcept {
  GivenName* free = nullptr;
  for (GivenName& given : given_names_) {
    if (given.tid == tid) return &given;
    if (given.tid == 0 && free == nullptr) free = &given;
  }
  return free;
}

void EventDrain::ThreadBegan(int slot, const ThreadBeginsEvent& event) noexcept {
  // In a shared ring, threads take turns: none of them has ended.
  if (!IsShared(slot)) ThreadEnded(slot);
  Writer& writer = writers_[slot];
  writer.id = event.thread_id;
  writer.tid = event.tid;
  std::memcpy(writer.name, event.name, sizeof(writer.name));
  uint32_t& known = defined_[event.thread_id % kDefined];
  if (IsShared(slot) && known == event.thread_id) return;
  known = event.thread_id;
  DefineThread(writer);
}

// The kernel may reuse its thread id.
void EventDrain::ThreadEnded(int slot) noexcept {
  if (writers_[slot].tid == 0) return;
  if (GivenName* given = GivenNameOf(writers_[slot].tid); given != nullptr) *given = {};
  writers_[slot] = {};
}

void EventDrain::DefineThread(const Writer& writer) noexcept {
  char name[32];
  size_t length = LiveThreadName(writer.tid, name, sizeof(name));
  if (length == 0) {
    length = strnlen(writer.name, sizeof(writer.name));
    std::memcpy(name, writer.name, length);
  }
  const GivenName* given = GivenNameOf(writer.tid);
  builder_->DefineThread(writer.id, writer.tid, {name, length}, writer.tid == static_cast<uint32_t>(getpid()),
                         given == nullptr ? std::string_view() : std::string_view(given->text, given->bytes));
}

// Threads name each other, and themselves before or after their first event of another kind.
void EventDrain::NamedThread(const ThreadNameEvent& event, std::string_view name) noexcept {
  GivenName* given = GivenNameOf(event.tid);
  if (given == nullptr) return CountLoss(wire::LossReason::kLossDefinitionsFull);
  given->tid = event.tid;
  given->bytes = static_cast<uint32_t>(name.size() < kMaxThreadNameBytes ? name.size() : kMaxThreadNameBytes);
  std::memcpy(given->text, name.data(), given->bytes);
  for (const Writer& writer : writers_) {
    if (writer.tid == event.tid) return DefineThread(writer);
  }
}

// Stamps become nanoseconds, in the ring, so that the later passes find them. False when the event is younger
// than the last reading of the clock: its stamp is left alone.
bool EventDrain::TellTimes(int slot, EventHeader* header, bool all) noexcept {
  const auto type = static_cast<EventType>(header->type);
  if (type == EventType::kPlanLaunch || type == EventType::kThreadBegins) return true;
  const bool is_call = type == EventType::kCollective;
  uint64_t& published = StampAt(*header, is_call ? offsetof(CollectiveEvent, return_ns) : 0);
  if (!all && !host_clock.IsFinal(published)) return false;
  published = host_clock.RealtimeNs(published);
  if (is_call) {
    uint64_t& issued = StampAt(*header, offsetof(CollectiveEvent, issue_ns));
    issued = host_clock.RealtimeNs(issued);
    return true;  // calls of a group are published together, after what happened meanwhile
  }
  if (type == EventType::kAllocation) {
    uint64_t& began = StampAt(*header, offsetof(AllocationEvent, began_ns));
    if (began != 0) began = host_clock.RealtimeNs(began);
  }
  if (type == EventType::kPhysicalMemory) {
    uint64_t& began = StampAt(*header, offsetof(PhysicalMemoryEvent, began_ns));
    if (began != 0) began = host_clock.RealtimeNs(began);
  }
  if (type == EventType::kLaunchTime) {
    uint64_t& entered = StampAt(*header, offsetof(LaunchTimeEvent, entered_ns));
    entered = host_clock.RealtimeNs(entered);
  }
  if (type == EventType::kDriverCall) {
    uint64_t& entered = StampAt(*header, offsetof(DriverCallEvent, entered_ns));
    entered = host_clock.RealtimeNs(entered);
  }
  if (type == EventType::kGraphCall) {
    uint64_t& began = StampAt(*header, offsetof(GraphCallEvent, began_ns));
    if (began != 0) began = host_clock.RealtimeNs(began);
  }
  uint64_t& before = last_ns_[slot];
  if (published < before && before - published < kStampJitterNs) published = before;
  before = published;
  return true;
}

// The thread of a call that another thread reports: the caller, if its ring is still its own, else the
// reporting thread.
uint32_t EventDrain::KnownThread(uint32_t thread_id, uint32_t otherwise) const noexcept {
  for (const Writer& writer : writers_) {
    if (writer.id == thread_id) return thread_id;
  }
  return otherwise;
}

// Launches need no order among threads and are most of the traffic: one pass over the ring takes them all,
// the merge skips them.
void EventDrain::TakeLaunches(int slot, EventRing& ring, uint64_t until_ns, Cursor* cursor) noexcept {
  const uint64_t end = ring.PublishedEnd();
  uint64_t position = ring.ReadPosition();
  *cursor = {&ring, writers_[slot].id, position, position, kNever};
  while (EventHeader* header = ring.Peek(&position, end)) {
    if (!TellTimes(slot, header, until_ns == kNever) || EventTime(*header) >= until_ns) break;
    switch (static_cast<EventType>(header->type)) {
      case EventType::kLaunch:
        Launched(Payload<LaunchEvent>(*header), writers_[slot].id);
        break;
      case EventType::kThreadBegins:
        ThreadBegan(slot, Payload<ThreadBeginsEvent>(*header));
        break;
      case EventType::kLaunchTime:
        LaunchTook(Payload<LaunchTimeEvent>(*header));
        break;
      default:
        break;
    }
    position += header->total_bytes;
    cursor->end = position;
  }
}

void EventDrain::LaunchTook(const LaunchTimeEvent& event) noexcept {
  if (event.time_ns <= event.entered_ns) return;
  CountSelf(SelfCounter::kLaunches, kLaunchSampling);
  CountSelf(SelfCounter::kLaunchNs,
            std::min(event.time_ns - event.entered_ns, kMaxLaunchNs) * kLaunchSampling);
}

void EventDrain::Launched(LaunchEvent event, uint32_t thread) noexcept {
  if (!recording.HoldsLaunch(event.time_ns)) return CountLeftOut(event.time_ns);
  if (!recording.Wants(kRecordNvtx)) event.range_id = event.fallback_range_id = 0;
  builder_->Add(RowOf(event, thread));
}

void EventDrain::Advance(Cursor* cursor, uint64_t until_ns) noexcept {
  while (const EventHeader* header = cursor->ring->Peek(&cursor->position, cursor->end)) {
    const auto type = static_cast<EventType>(header->type);
    if (type == EventType::kThreadBegins) {
      cursor->thread = Payload<ThreadBeginsEvent>(*header).thread_id;
    } else if (type != EventType::kLaunch && type != EventType::kLaunchTime) {
      const uint64_t time_ns = EventTime(*header);
      if (time_ns > until_ns) {
        cursor->next_ns = time_ns;
        return;
      }
      Take(*header, cursor->thread);
    }
    cursor->position += header->total_bytes;
  }
  cursor->next_ns = kNever;
}

// By time, in runs: the thread that is furthest back goes on until it passes the next one.
void EventDrain::Merge(Cursor* cursors, int count) noexcept {
  const auto later = [](const Cursor* a, const Cursor* b) noexcept { return a->next_ns > b->next_ns; };
  Cursor* heap[kRingSlots];
  for (int i = 0; i < count; ++i) heap[i] = &cursors[i];
  for (int left = count; left > 0;) {
    std::pop_heap(heap, heap + left, later);
    Cursor* first = heap[left - 1];
    Advance(first, left > 1 ? heap[0]->next_ns : kNever - 1);
    if (first->next_ns == kNever) {
      --left;
    } else {
      std::push_heap(heap, heap + left, later);
    }
  }
}

void EventDrain::Drain(uint64_t until_ns) noexcept {
  host_clock.Read(until_ns == kNever);
  if (step_gate.in_use()) step_gate.TellTimes();
  int count = 0;
  for (int slot = 0; slot < kRingSlots; ++slot) {
    EventRing& ring = RingAt(slot);
    if (ring.slot() == EventRing::Slot::kFree) continue;
    Cursor& cursor = cursors_[count];
    TakeLaunches(slot, ring, until_ns, &cursor);
    if (cursor.end == ring.ReadPosition()) {
      if (!IsShared(slot) && ring.slot() == EventRing::Slot::kReleased && FreeRing(ring)) ThreadEnded(slot);
      continue;
    }
    cursor.next_ns = 0;
    ++count;
  }
  Merge(cursors_, count);
  allocations_.Settle(until_ns);
  for (int i = 0; i < count; ++i) cursors_[i].ring->Consume(cursors_[i].end);
}

void EventDrain::Take(const EventHeader& header, uint32_t thread) noexcept {
  if (!recording.Wants(RecordKindOf(static_cast<EventType>(header.type)))) return;
  switch (static_cast<EventType>(header.type)) {
    case EventType::kLaunch:
    case EventType::kLaunchTime:
    case EventType::kThreadBegins:
      return;
    case EventType::kRangeOpen:
      return OpenedRange(Payload<RangeOpenEvent>(header), Text<RangeOpenEvent>(header), thread);
    case EventType::kRangeClose:
      return ClosedRange(Payload<RangeCloseEvent>(header));
    case EventType::kMark:
      return Marked(Payload<MarkEvent>(header), Text<MarkEvent>(header), thread);
    case EventType::kAllocation:
      return allocations_.Take(Payload<AllocationEvent>(header), thread);
    case EventType::kPhysicalMemory:
      return allocations_.Take(Payload<PhysicalMemoryEvent>(header), thread);
    case EventType::kAllocatorLevel:
      return builder_->Add(RowOf(Payload<AllocatorLevelEvent>(header)));
    case EventType::kAllocatorRefusal:
      return builder_->Add(RowOf(Payload<AllocatorRefusalEvent>(header)));
    case EventType::kTensor:
      return builder_->Add(RowOf(Payload<TensorEvent>(header)));
    case EventType::kContextEnd:
      return allocations_.ContextEnded(Payload<ContextEndEvent>(header), thread);
    case EventType::kCollective:
      return Collective(Payload<CollectiveEvent>(header), thread);
    case EventType::kPlanLaunch: {
      const auto event = Payload<PlanLaunchEvent>(header);
      if (event.graph_node != 0 && event.plan != 0)
        graph_plans_.Carries(event.graph_node, event.plan, event.copy);
      return PlanLaunched(event);
    }
    case EventType::kGraphNode: {
      const auto event = Payload<GraphNodeEvent>(header);
      return graph_plans_.NodeMade(event.owner, event.node, event.original);
    }
    case EventType::kGraphMemoryNode:
      return allocations_.Take(Payload<GraphMemoryNodeEvent>(header));
    case EventType::kDriverCall:
      return DriverCalled(Payload<DriverCallEvent>(header), thread);
    case EventType::kTracedStep: {
      const auto event = Payload<TracedStepEvent>(header);
      return builder_->Add(wire::TracedStepRow{.begin_ns = event.time_ns, .index = event.index});
    }
    case EventType::kCallTime:
      return CallTook(Payload<CallTimeEvent>(header));
    case EventType::kGraphCall:
      return OnGraphCall(Payload<GraphCallEvent>(header), thread);
    case EventType::kThreadName:
      return NamedThread(Payload<ThreadNameEvent>(header), Text<ThreadNameEvent>(header));
    case EventType::kCategoryName: {
      const auto event = Payload<CategoryNameEvent>(header);
      return builder_->DefineCategory(DomainName(event.domain), event.category,
                                      builder_->String(Text<CategoryNameEvent>(header)));
    }
    case EventType::kRangePayload:
      return TookPayload(Payload<RangePayloadEvent>(header), Text<RangePayloadEvent>(header));
    case EventType::kObjectName: {
      const auto event = Payload<ObjectNameEvent>(header);
      return builder_->DefineObjectName(event, builder_->String(Text<ObjectNameEvent>(header)));
    }
    case EventType::kCommunicator:
      return Communicator(Payload<CommunicatorEvent>(header), Text<CommunicatorEvent>(header));
  }
  CountLoss(wire::LossReason::kLossUnknownRecord);
}

uint32_t EventDrain::DomainName(uint64_t handle) noexcept {
  if (handle == 0 || event_names.range_domain == nullptr) return 0;
  char name[kMaxNameBytes];
  const size_t length = event_names.range_domain(handle, name, sizeof(name));
  return builder_->String({name, length < sizeof(name) ? length : sizeof(name)});
}

void EventDrain::AddRange(const wire::RangeRow& row) noexcept {
  if (!recording.Overlaps(row.start_ns, row.end_ns) ||
      (step_gate.in_use() && !step_gate.Overlaps(row.start_ns, row.end_ns))) {
    return CountSelf(SelfCounter::kOutsideWindow);
  }
  builder_->Add(row);
}

void EventDrain::OpenedRange(const RangeOpenEvent& event, std::string_view name, uint32_t thread) noexcept {
  const OpenRange range{.start_ns = event.time_ns,
                        .parent_id = event.parent_id,
                        .name = builder_->String(OperatorName(name)),
                        .domain = DomainName(event.domain),
                        .thread = thread,
                        .category = event.category,
                        .payload = event.payload,
                        .color = event.color,
                        .payload_kind = event.payload_kind,
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

wire::RangeRow EventDrain::RangeOf(uint64_t id, const OpenRange& range, uint64_t end_ns,
                                   bool unclosed) const noexcept {
  return {.start_ns = range.start_ns,
          .end_ns = end_ns > range.start_ns ? end_ns : range.start_ns,
          .id = id,
          .parent = range.parent_id,
          .name = range.name,
          .domain = range.domain,
          .thread = range.thread,
          .kind = static_cast<wire::RangeKind>(range.kind),
          .unclosed = unclosed,
          .category = range.category,
          .color = range.color,
          .payload = range.payload,
          .payload_kind = static_cast<wire::PayloadKind>(range.payload_kind)};
}

void EventDrain::ClosedRange(const RangeCloseEvent& event) noexcept {
  const OpenRange* range = open_ranges_.Find(event.id);
  if (range == nullptr) {
    // Closed by another thread, whose event came before the opening one.
    if (early_closes_.Insert(event.id, event.time_ns) == nullptr)
      CountLoss(wire::LossReason::kLossDefinitionsFull);
    return;
  }
  AddRange(RangeOf(event.id, *range, event.time_ns, false));
  open_ranges_.Erase(event.id);
}

void EventDrain::Marked(const MarkEvent& event, std::string_view name, uint32_t thread) noexcept {
  const uint32_t name_id = builder_->String(OperatorName(name));
  const uint32_t domain = DomainName(event.domain);
  AddRange({.start_ns = event.time_ns,
            .end_ns = event.time_ns,
            .id = event.id,
            .parent = event.parent_id,
            .name = name_id,
            .domain = domain,
            .thread = thread,
            .kind = wire::RangeKind::kRangeKindMark,
            .unclosed = false,
            .category = event.category,
            .color = event.color,
            .payload = event.payload,
            .payload_kind = static_cast<wire::PayloadKind>(event.payload_kind)});
}

void EventDrain::TookPayload(const RangePayloadEvent& event, std::string_view bytes) noexcept {
  if (event_names.payload_field == nullptr || !recording.Holds(event.time_ns)) return;
  if (step_gate.in_use() && !step_gate.Holds(event.time_ns)) return;
  std::string_view name;
  uint64_t value = 0;
  uint32_t kind = 0;
  for (size_t field = 0; event_names.payload_field(event.schema, field, bytes, &name, &value, &kind);
       ++field) {
    if (kind != 0)
      builder_->Add(wire::RangePayloadRow{.range = event.range_id,
                                          .field = builder_->String(name),
                                          .value = value,
                                          .kind = static_cast<wire::PayloadKind>(kind)});
  }
}

void EventDrain::DriverCalled(const DriverCallEvent& event, uint32_t thread) noexcept {
  if (event.time_ns < event.entered_ns + kSlowDriverCallNs || event.function == nullptr) return;
  // Not counted as left out: how many calls are slow depends on the machine.
  if (!recording.Overlaps(event.entered_ns, event.time_ns) ||
      (step_gate.in_use() && !step_gate.Overlaps(event.entered_ns, event.time_ns)))
    return;
  builder_->Add(wire::DriverCallRow{
      .start_ns = event.entered_ns,
      .end_ns = event.time_ns,
      .function = builder_->String({event.function, strnlen(event.function, kMaxNameBytes)}),
      .thread = thread,
      .range = recording.Wants(kRecordNvtx) ? event.range_id : 0,
      .result = event.result,
      .by_nccl = event.by_nccl != 0});
}

void EventDrain::OnGraphCall(const GraphCallEvent& event, uint32_t thread) noexcept {
  // From its next launch on.
  const auto carries = [&](uint64_t node, uint64_t plan, uint32_t copy) noexcept {
    builder_->Add(RowOf(PlanLaunchEvent{plan, 0, event.exec_number, node, copy, 0}, event.correlation));
  };
  switch (static_cast<GraphCall>(event.call)) {
    case GraphCall::kInstantiated:
      graph_plans_.Instantiated(event.exec, kCopiedBy | event.correlation);
      return allocations_.GraphInstantiated(event.graph, event.exec);
    case GraphCall::kUpdated:
      return graph_plans_.Updated(event.exec, event.graph, carries);
    case GraphCall::kCloned:
      return graph_plans_.Cloned(event.graph, kCopiedBy | event.correlation);
    case GraphCall::kChildAdded:
      if (event.child != 0) allocations_.GraphMoved(event.graph, event.child);
      return graph_plans_.ChildAdded(event.graph, event.node,
                                     event.child != 0 ? event.child : kCopiedBy | event.correlation);
    case GraphCall::kChildReplaced:
      return graph_plans_.ChildReplaced(event.exec, event.node, event.child, carries);
    case GraphCall::kLaunched:
      return allocations_.GraphLaunched(event, thread);
    case GraphCall::kGraphDestroyed:
      graph_plans_.GraphEnded(event.graph);
      return allocations_.GraphDestroyed(event.graph);
    case GraphCall::kExecDestroyed:
      graph_plans_.ExecEnded(event.exec);
      return allocations_.ExecDestroyed(event, thread);
    case GraphCall::kExecGone:
      return allocations_.ExecGone(event, thread);
  }
}

uint32_t EventDrain::OperationName(uint16_t op) noexcept {
  const char* name = event_names.collective_op == nullptr ? nullptr : event_names.collective_op(op);
  return name == nullptr ? 0 : builder_->String(name);
}

// Level calls. A send or a receive has no number that both sides count alike.
void EventDrain::Trace(const CollectiveEvent& event) noexcept {
  if (event.peer >= 0 || event.captured != 0) return;
  constexpr int32_t kInProgress = 7;  // ncclResult_t, of a communicator that does not block
  if (event.result != 0 && event.result != kInProgress) return;
  builder_->Add(wire::TracedCallRow{.issue_ns = event.issue_ns,
                                    .return_ns = std::max(event.issue_ns, event.return_ns),
                                    .op = OperationName(event.op),
                                    .comm = event.comm,
                                    .seq = event.seq,
                                    .bytes = event.count * event.element_bytes});
}

void EventDrain::CallTook(const CallTimeEvent& event) noexcept {
  builder_->Add(wire::CallTimeRow{.seen_ns = event.time_ns,
                                  .op = OperationName(event.op),
                                  .comm = event.comm,
                                  .number = event.number,
                                  .gpu_ns = event.gpu_ns});
}

void EventDrain::Collective(const CollectiveEvent& event, uint32_t thread) noexcept {
  if (step_gate.traces_calls()) Trace(event);
  // Launches of the graph that it was captured into come later.
  if (step_gate.in_use() && event.captured == 0 && !step_gate.Holds(event.issue_ns)) {
    return CountLeftOut(event.issue_ns);
  }
  if (!recording.Holds(event.issue_ns)) return CountLeftOut(event.issue_ns);
  const char* datatype =
      event_names.collective_datatype == nullptr ? nullptr : event_names.collective_datatype(event.datatype);
  const auto how = [this](uint8_t number) noexcept {
    return number == 0 || event_names.collective_how == nullptr
               ? 0
               : builder_->String(event_names.collective_how(number));
  };
  const char* reduction = event.reduction == 0 || event_names.collective_reduction == nullptr
                              ? nullptr
                              : event_names.collective_reduction(event.reduction);
  const CollectiveNames names{.op = OperationName(event.op),
                              .datatype = datatype == nullptr ? 0 : builder_->String(datatype),
                              .algorithm = how(event.algorithm),
                              .protocol = how(event.protocol),
                              .reduction = reduction == nullptr ? 0 : builder_->String(reduction)};
  builder_->Add(RowOf(event, names, event.thread == 0 ? thread : KnownThread(event.thread, thread)));
}

uint32_t EventDrain::MadeBy(uint16_t entry_point) noexcept {
  const char* made_by = entry_point == 0 || event_names.collective_op == nullptr
                            ? nullptr
                            : event_names.collective_op(static_cast<uint16_t>(entry_point - 1));
  return made_by == nullptr ? 0 : builder_->String(made_by);
}

void EventDrain::Communicator(const CommunicatorEvent& event, std::string_view name) noexcept {
  builder_->DefineCommunicator(event, name.empty() ? 0 : builder_->String(name), MadeBy(event.made_by));
}

void EventDrain::PlanLaunched(const PlanLaunchEvent& event) noexcept {
  if (step_gate.in_use() && event.correlation != 0 && !step_gate.IsRecorded(event.correlation)) return;
  builder_->Add(RowOf(event));
}

void EventDrain::NoteHostState() noexcept {
  HostStateRow state;
  state.io_bytes = IoBytes();
  state.last_wait_end_ns = main_thread_waited_until_ns.load(std::memory_order_relaxed);
  if (const char* function = main_thread_waits_in.load(std::memory_order_acquire); function != nullptr) {
    state.blocked_in = builder_->String({function, strnlen(function, kMaxNameBytes)});
    state.blocked_since_ns = main_thread_waits_since_ns.load(std::memory_order_relaxed);
  }
  // From the innermost range outward; the wire wants it the other way round.
  uint64_t id = main_thread_range.load(std::memory_order_relaxed);
  while (id != 0 && state.open_range_count < HostStateRow::kMaxRanges) {
    const OpenRange* range = open_ranges_.Find(id);
    if (range == nullptr) break;
    state.open_ranges[state.open_range_count++] = range->name;
    id = range->parent_id;
  }
  const auto note = [this](const CreationSlot& slot, CreationRow& row) noexcept {
    row.known = slot.Read(&row.facts);
    if (row.known) row.made_by = MadeBy(row.facts.made_by);
  };
  note(creating_communicator, state.creating);
  note(refused_communicator, state.refused);
  builder_->SetHostState(state);
}

void EventDrain::CloseOpenRanges(uint64_t now_ns) noexcept {
  open_ranges_.ForEach(
      [this, now_ns](uint64_t id, const OpenRange& range) { AddRange(RangeOf(id, range, now_ns, true)); });
  open_ranges_.Clear();
}

}  // namespace gpuprobe::injector
