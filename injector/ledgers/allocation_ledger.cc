#include "injector/ledgers/allocation_ledger.h"

#include "injector/base/losses.h"
#include "injector/core/recording.h"
#include "injector/ledgers/event_rows.h"

namespace gpuprobe::injector {

namespace {

// How long a thread may be kept from reporting an allocation while another one releases it.
constexpr uint64_t kEarlyNs = 1'000'000'000;

constexpr auto kGraph = static_cast<uint8_t>(wire::MemoryKind::kMemoryKindGraph);

// Handles of the virtual memory API are small numbers of their own: they must not meet addresses.
uint64_t KeyOf(uint64_t address, uint8_t what) noexcept {
  return what == kPhysical ? address ^ (uint64_t{1} << 63) : address;
}

// A graph's own needs have no address of their own: their addresses may be those of memory that outlives it.
uint64_t KeyOfOwn(uint64_t exec, int32_t device) noexcept {
  return (exec ^ (uint64_t{1} << 62)) + static_cast<uint64_t>(device);
}

// The key of an executable graph that this thread destroys.
uint64_t KeyOfEnding(uint32_t thread, uint32_t device) noexcept {
  return (uint64_t{3} << 61) + uint64_t{thread} * uint64_t{GraphMemory::kMaxDevices} + device;
}

bool IsRelease(const AllocationEvent& event) noexcept {
  return static_cast<wire::AllocationOp>(event.op) == wire::AllocationOp::kAllocationOpFree;
}

}  // namespace

void AllocationLedger::Record(const AllocationEvent& event, uint32_t thread) noexcept {
  if (event.what == kImported) return;
  const bool small = event.failed == 0 && event.bytes < recording.min_allocation_bytes;
  if (!small || !small_run_.Fits(event)) EndSmallRun();
  const bool same_call = event.time_ns == last_ns_ && event.began_ns == last_began_ns_;
  if (!same_call) before_call_ns_ = last_ns_;
  AllocationEvent told = event;
  told.time_ns = TellingTime(event.time_ns, small);
  if (small) {
    if (told.began_ns >= before_call_ns_) told.began_ns = 0;  // beside parts of its own call at most
    small_run_.Add(told, last_ns_);
  } else {
    builder_->Add(RowOf(told, thread));
  }
  if (event.time_ns < last_ns_) return;
  last_ns_ = event.time_ns;
  last_began_ns_ = event.began_ns;
}

// Readers put a run before a record of the same time. The parts of one launch all have the same time, small
// and large ones in any order: a run that follows a record is stamped a nanosecond later, which keeps it.
uint64_t AllocationLedger::TellingTime(uint64_t time_ns, bool small) noexcept {
  if (time_ns < last_ns_) return time_ns;
  const uint64_t after_last_ns = told_ns_ + (small && !told_small_ ? 1 : 0);
  told_ns_ = time_ns > after_last_ns ? time_ns : after_last_ns;
  told_small_ = small;
  return told_ns_;
}

void AllocationLedger::EndSmallRun() noexcept {
  if (small_run_.empty()) return;
  builder_->Add(RowOf(small_run_));
  small_run_ = {};
}

void AllocationLedger::RecordRelease(const LiveMemory& memory, uint64_t began_ns, uint64_t time_ns,
                                     uint64_t range_id, uint32_t thread) noexcept {
  AllocationEvent event{};
  event.what = memory.what;
  event.time_ns = time_ns;
  event.address = memory.address;
  event.bytes = memory.bytes;
  event.range_id = range_id;
  event.began_ns = began_ns;
  event.device = memory.device;
  event.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpFree);
  event.memory = memory.memory;
  if (memory.what == kImported) ArrayEnded(event, thread);
  Record(event, thread);
}

void AllocationLedger::Take(const AllocationEvent& event, uint32_t thread) noexcept {
  if (IsRelease(event)) return Released(event, thread);
  if (event.failed != 0 || event.address == 0) return Record(event, thread);
  Allocated(event, thread);
}

void AllocationLedger::Allocated(const AllocationEvent& event, uint32_t thread) noexcept {
  const uint64_t key = KeyOf(event.address, event.what);
  const LiveMemory memory{.address = event.address,
                          .bytes = event.bytes,
                          .context = event.context,
                          .since_ns = event.time_ns,
                          .ending_ns = 0,
                          .device = event.device,
                          .memory = event.memory,
                          .what = event.what};
  if (const LiveMemory* other = live_.Find(key); other != nullptr) {
    const LiveMemory copy = *other;
    const bool ends = copy.ending_ns != 0;  // with its context: no release will be reported
    if (event.what != kPhysical && !ends) Owe(key);
    if (copy.since_ns > event.time_ns) {  // the event's memory came first, but is reported late
      if (event.what == kImported) return;
      Record(event, thread);
      return RecordRelease(memory, memory.since_ns, copy.since_ns, event.range_id, thread);
    }
    RecordRelease(copy, ends ? copy.ending_ns : copy.since_ns, event.time_ns, event.range_id, thread);
  } else if (event.what == kPhysical) {
    HandleTaken(event.address, event.time_ns, event.range_id, thread);
  }
  const bool followed = event.what != kPhysical || physical_.Created(event.address, event.time_ns);
  if (!followed || live_.Insert(key, memory) == nullptr) {
    live_.Erase(key);
    if (followed) CountLoss(wire::LossReason::kLossDefinitionsFull);
    return;
  }
  Record(event, thread);
  const EarlyRelease* early = early_.Find(key);
  if (early == nullptr || early->event.began_ns < event.time_ns) return;
  const EarlyRelease copy = *early;
  early_.Erase(key);
  Released(copy.event, copy.thread);
}

void AllocationLedger::Owe(uint64_t key) noexcept {
  if (uint32_t* owed = owed_.Find(key); owed != nullptr) {
    ++*owed;
  } else if (owed_.Insert(key, 1) == nullptr) {
    CountLoss(wire::LossReason::kLossDefinitionsFull);
  }
}

bool AllocationLedger::MeetsOwed(uint64_t key) noexcept {
  uint32_t* owed = owed_.Find(key);
  if (owed == nullptr) return false;
  if (--*owed == 0) owed_.Erase(key);
  return true;
}

void AllocationLedger::Released(const AllocationEvent& event, uint32_t thread) noexcept {
  const uint64_t key = KeyOf(event.address, event.what);
  const LiveMemory* memory = live_.Find(key);
  const bool late = event.began_ns != 0 && (memory == nullptr || event.began_ns < memory->since_ns);
  if (late && MeetsOwed(key)) return;  // it was recorded already
  if (memory == nullptr) return event.began_ns == 0 ? Unknown(event, thread) : Park(key, event, thread);
  AllocationEvent release = event;
  release.bytes = memory->bytes;
  release.device = memory->device;
  release.memory = memory->memory;
  release.what = memory->what;
  live_.Erase(key);
  if (release.what == kImported) ArrayEnded(release, thread);
  Record(release, thread);
}

void AllocationLedger::Unknown(const AllocationEvent& event, uint32_t thread) noexcept {
  CountLoss(wire::LossReason::kLossAllocationUnknown);
  EndSmallRun();
  builder_->Add(RowOf(event, thread));
}

void AllocationLedger::Park(uint64_t key, const AllocationEvent& event, uint32_t thread) noexcept {
  if (early_.Find(key) != nullptr || early_.Insert(key, {event, thread}) == nullptr) Unknown(event, thread);
}

// A table must not change while it is walked: a handful at a time.
void AllocationLedger::Settle(uint64_t until_ns) noexcept {
  constexpr size_t kAtOnce = 64;
  uint64_t keys[kAtOnce];
  for (size_t found = kAtOnce; found == kAtOnce && early_.size() != 0;) {
    found = 0;
    early_.ForEach([&](uint64_t key, const EarlyRelease& early) {
      const bool waits = until_ns != kNever && early.event.time_ns + kEarlyNs > until_ns;
      if (!waits && found < kAtOnce) keys[found++] = key;
    });
    for (size_t i = 0; i < found; ++i) {
      const EarlyRelease early = *early_.Find(keys[i]);
      early_.Erase(keys[i]);
      Unknown(early.event, early.thread);
    }
  }
  SettleContexts(until_ns);
  EndSmallRun();
}

// Other threads may get its addresses before the call that ends it returns.
void AllocationLedger::ContextEnded(const ContextEndEvent& event, uint32_t thread) noexcept {
  if (const EndingContext* found = ending_contexts_.Find(thread); found != nullptr) {
    const EndingContext ending = *found;
    ending_contexts_.Erase(thread);
    EndContext(ending, event.time_ns, thread);
  }
  if (event.context == 0) return;
  bool any = false;
  live_.ForEach([&](uint64_t, LiveMemory& memory) {
    if (memory.context != event.context || memory.ending_ns != 0) return;
    memory.ending_ns = event.time_ns;
    any = true;
  });
  const EndingContext ending{.context = event.context, .began_ns = event.time_ns};
  if (any && ending_contexts_.Insert(thread, ending) == nullptr) EndContext(ending, event.time_ns, thread);
}

// A table must not change while it is walked: a handful at a time.
void AllocationLedger::EndContext(const EndingContext& ending, uint64_t time_ns, uint32_t thread) noexcept {
  constexpr size_t kAtOnce = 256;
  uint64_t keys[kAtOnce];
  for (size_t found = kAtOnce; found == kAtOnce;) {
    found = 0;
    live_.ForEach([&](uint64_t key, const LiveMemory& memory) {
      if (memory.context == ending.context && memory.ending_ns == ending.began_ns && found < kAtOnce)
        keys[found++] = key;
    });
    for (size_t i = 0; i < found; ++i) {
      const LiveMemory memory = *live_.Find(keys[i]);
      live_.Erase(keys[i]);
      RecordRelease(memory, ending.began_ns, time_ns, 0, thread);
    }
  }
}

// A call that ends a context and has not returned after this time will not be seen to return.
void AllocationLedger::SettleContexts(uint64_t until_ns) noexcept {
  for (bool found = ending_contexts_.size() != 0; found;) {
    found = false;
    uint32_t thread = 0;
    EndingContext ending{};
    ending_contexts_.ForEach([&](uint64_t key, const EndingContext& each) {
      if (until_ns != kNever && each.began_ns + kEarlyNs > until_ns) return;
      found = true;
      thread = static_cast<uint32_t>(key);
      ending = each;
    });
    if (!found) return;
    ending_contexts_.Erase(thread);
    EndContext(ending, ending.began_ns, thread);
  }
}

// --- physical memory
// --------------------------------------------------------------------------------------------------------------

void AllocationLedger::PhysicalEnded(uint64_t handle, const PhysicalMemoryEvent& event,
                                     uint32_t thread) noexcept {
  const uint64_t key = KeyOf(handle, kPhysical);
  const LiveMemory* memory = live_.Find(key);
  if (memory == nullptr) {
    return physical_.ObjectEnded(handle, event.began_ns,
                                 [&](uint64_t bound) noexcept { PhysicalEnded(bound, event, thread); });
  }
  // A mapping that replaces another one is the late report of that one's end.
  RecordRelease(*memory, event.began_ns != 0 ? event.began_ns : memory->since_ns, event.time_ns,
                event.range_id, thread);
  live_.Erase(key);
}

// Memory mapped into a sparse array is unmapped with it.
void AllocationLedger::ArrayEnded(const AllocationEvent& event, uint32_t thread) noexcept {
  PhysicalMemoryEvent end{};
  end.time_ns = event.time_ns;
  end.range_id = event.range_id;
  end.began_ns = event.began_ns;
  physical_.ObjectEnded(event.address, end.began_ns,
                        [&](uint64_t handle) noexcept { PhysicalEnded(handle, end, thread); });
}

// The handle has a new owner: the previous one has ended, and its thread has not reported that yet.
void AllocationLedger::HandleTaken(uint64_t handle, uint64_t time_ns, uint64_t range_id,
                                   uint32_t thread) noexcept {
  PhysicalMemoryEvent event{};
  event.time_ns = time_ns;
  event.range_id = range_id;
  PhysicalEnded(handle, event, thread);
}

void AllocationLedger::Bound(const PhysicalMemoryEvent& event, uint32_t thread) noexcept {
  const uint64_t handle = event.by_address != 0 ? physical_.HandleAt(event.address) : event.address;
  const LiveMemory* memory = live_.Find(KeyOf(handle, kPhysical));
  if (memory == nullptr) return;
  physical_.Bound(event.handle, memory->device, event.bytes, handle, event.time_ns,
                  [&](uint64_t gone) noexcept { PhysicalEnded(gone, event, thread); });
}

void AllocationLedger::Take(const PhysicalMemoryEvent& event, uint32_t thread) noexcept {
  const auto ended = [&](uint64_t handle) noexcept { PhysicalEnded(handle, event, thread); };
  switch (static_cast<PhysicalMemoryCall>(event.call)) {
    case PhysicalMemoryCall::kRetained:
      return physical_.Retained(event.handle);
    case PhysicalMemoryCall::kReleased:
      if (physical_.Released(event.handle, event.began_ns)) ended(event.handle);
      return;
    case PhysicalMemoryCall::kMapped:
      return physical_.Mapped(event.address, event.bytes, event.handle, event.time_ns, ended);
    case PhysicalMemoryCall::kUnmapped:
      return physical_.Unmapped(event.address, event.bytes, event.began_ns, ended);
    case PhysicalMemoryCall::kImported:
      return physical_.Imported(event.handle, event.time_ns);
    case PhysicalMemoryCall::kObjectMade:
      HandleTaken(event.handle, event.time_ns, event.range_id, thread);
      physical_.Created(event.handle, event.time_ns);
      return;
    case PhysicalMemoryCall::kBound:
      return Bound(event, thread);
    case PhysicalMemoryCall::kUnbound:
      return physical_.Unbound(event.handle, event.device, event.bytes, event.began_ns, ended);
  }
}

// --- memory of graphs
// -------------------------------------------------------------------------------------------------------------

void AllocationLedger::Take(const GraphMemoryNodeEvent& event) noexcept {
  if (static_cast<wire::AllocationOp>(event.op) == wire::AllocationOp::kAllocationOpFree) {
    graph_memory_.Releases(event.graph, event.address);
  } else {
    graph_memory_.Allocates(event.graph, event.address, event.bytes, event.device);
  }
}

// Its handle may be given out again at once, its memory goes before the call returns.
void AllocationLedger::ExecDestroyed(const GraphCallEvent& event, uint32_t thread) noexcept {
  ExecGone(event, thread);  // of the previous one, in case its end was not reported
  graph_memory_.ExecEnded(event.exec, [&](const GraphMemory::Own& own) noexcept {
    const uint64_t key = KeyOfOwn(event.exec, own.device);
    const LiveMemory* memory = live_.Find(key);
    if (memory == nullptr) return;  // it went with its context
    const LiveMemory copy = *memory;
    live_.Erase(key);
    const auto device = static_cast<uint32_t>(own.device % GraphMemory::kMaxDevices);
    uint64_t* devices = ending_.Find(thread);
    if (devices == nullptr) devices = ending_.Insert(thread, 0);
    if (devices == nullptr || live_.Insert(KeyOfEnding(thread, device), copy) == nullptr)
      return RecordRelease(copy, 0, event.time_ns, event.range_id, thread);
    *devices |= uint64_t{1} << device;
  });
}

void AllocationLedger::ExecGone(const GraphCallEvent& event, uint32_t thread) noexcept {
  const uint64_t* ending = ending_.Find(thread);
  if (ending == nullptr) return;
  uint64_t devices = *ending;
  ending_.Erase(thread);
  for (uint32_t device = 0; devices != 0; ++device, devices >>= 1) {
    const LiveMemory* memory = (devices & 1) != 0 ? live_.Find(KeyOfEnding(thread, device)) : nullptr;
    if (memory == nullptr) continue;  // it went with its context
    RecordRelease(*memory, event.began_ns, event.time_ns, event.range_id, thread);
    live_.Erase(KeyOfEnding(thread, device));
  }
}

void AllocationLedger::GraphOwns(const GraphCallEvent& event, const GraphMemory::Own& own,
                                 uint32_t thread) noexcept {
  AllocationEvent allocation{};
  allocation.time_ns = event.time_ns;
  allocation.address = own.address;
  allocation.bytes = own.bytes;
  allocation.range_id = event.range_id;
  allocation.context = event.context;
  allocation.began_ns = event.began_ns;
  allocation.device = own.device;
  allocation.memory = kGraph;
  const LiveMemory memory{.address = own.address,
                          .bytes = own.bytes,
                          .context = event.context,
                          .since_ns = event.time_ns,
                          .ending_ns = 0,
                          .device = own.device,
                          .memory = kGraph,
                          .what = 0};
  if (live_.Insert(KeyOfOwn(event.exec, own.device), memory) == nullptr)
    return CountLoss(wire::LossReason::kLossDefinitionsFull);
  Record(allocation, thread);
}

void AllocationLedger::GraphLaunched(const GraphCallEvent& event, uint32_t thread) noexcept {
  AllocationEvent allocation{};
  allocation.time_ns = event.time_ns;
  allocation.range_id = event.range_id;
  allocation.context = event.context;
  allocation.began_ns = event.began_ns;
  allocation.memory = kGraph;
  if (event.failed != 0) {
    const GraphMemory::Asked asked = graph_memory_.AskedBy(event.exec);
    if (asked.bytes == 0) return;
    allocation.bytes = asked.bytes;
    allocation.device = asked.device;
    allocation.failed = 1;
    return Record(allocation, thread);
  }
  graph_memory_.Launched(
      event.exec, [&](const GraphMemory::Own& own) noexcept { GraphOwns(event, own, thread); },
      [&](uint64_t address, uint64_t bytes, int32_t device) noexcept {
        // If the graph releases what its last launch left, that is still there. Anything else there had the
        // address before, and its end has not been reported yet.
        const LiveMemory* there = live_.Find(KeyOf(address, 0));
        if (there != nullptr && there->memory == kGraph) return;
        allocation.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpAlloc);
        allocation.address = address;
        allocation.bytes = bytes;
        allocation.device = device;
        Allocated(allocation, thread);
      },
      [&](uint64_t address) noexcept {
        AllocationEvent release = allocation;
        release.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpFree);
        release.address = address;
        release.bytes = 0;
        Released(release, thread);
      });
}

}  // namespace gpuprobe::injector
