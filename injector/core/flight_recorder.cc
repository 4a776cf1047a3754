#include "injector/core/flight_recorder.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <ctime>

#include "injector/base/futex.h"
#include "injector/base/mapping.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector {

static_assert(flight::kTicks == kTickStamp);
constinit flight::Process unshared_moments = {};

namespace {

constinit std::atomic<uint32_t> displaced{0};
constinit uint64_t readings = 0;  // the probe's thread's
constinit int rings_adopted = 0;  // likewise
constinit const flight::Process* before_ring =
    nullptr;                   // likewise: where it was written before the newest one
constinit int looks_left = 0;  // likewise: at what was still written there

constexpr int kMostRings = 8;  // of a process that meets one collector after the other

flight::CommunicatorPlace& PlaceOf(uint32_t communicator) noexcept {
  return Moments().communicators[(communicator - 1) % flight::kCommunicators];
}

// A place that another communicator has is taken from it: the younger one is more likely to be in use.
flight::CommunicatorPlace& TakePlace(uint32_t communicator) noexcept {
  flight::CommunicatorPlace& place = PlaceOf(communicator);
  if (place.communicator.id == communicator) return place;
  if (place.communicator.id != 0) displaced.fetch_add(1, std::memory_order_relaxed);
  std::memset(&place, 0, sizeof(place));
  place.communicator.id = communicator;
  place.communicator.rank = -1;
  flight::Seal(place.communicator);
  return place;
}

void AddCall(flight::CommunicatorPlace& place, const ThreadState& thread, const CollectiveEvent& call,
             std::string_view operation) noexcept {
  const uint64_t number = ++place.calls;
  flight::Call& record = place.last[number % flight::kCalls];
  record.number = number;
  record.sequence = call.seq;
  record.count = call.count;
  record.entered = call.issue_ns;
  record.left = 0;
  record.communicator = call.comm;
  record.tid = thread.tid;
  record.element_bytes = call.element_bytes;
  record.peer = call.peer;
  record.result = 0;
  FillText(record.operation, operation);
  flight::Seal(record);
}

// Threads go on recording meanwhile; a record that is torn by it is recognised, and soon written again.
__attribute__((no_sanitize("thread"))) void CopyMoments(flight::Process& to,
                                                        const flight::Process& from) noexcept {
  const auto* source = reinterpret_cast<const volatile uint64_t*>(&from);
  auto* target = reinterpret_cast<volatile uint64_t*>(&to);
  for (size_t i = 0; i < sizeof(from) / sizeof(uint64_t); ++i) target[i] = source[i];
}

// A thread that had read where to write before the ring was there may have noted a communicator in the memory
// before it after that was copied. It is noted once in its life.
void TakeLateCommunicators() noexcept {
  for (uint32_t i = 0; i < flight::kCommunicators; ++i) {
    const flight::Communicator late = before_ring->communicators[i].communicator;
    flight::Communicator& record = Moments().communicators[i].communicator;
    const bool lacks = record.id == 0 || (record.id == late.id && record.ranks == 0);
    if (late.id != 0 && lacks && flight::ConditionOf(late) == flight::Condition::kWhole) record = late;
  }
}

}  // namespace

void MoveRangesDown(flight::ThreadPlace& place, uint64_t to, uint64_t depth) noexcept {
  // What lies deeper than the ring keeps is not there to be moved.
  if (depth - to > flight::kRanges) to = depth - flight::kRanges;
  for (; to < depth; ++to) {
    flight::Range& range = place.ranges[to % flight::kRanges];
    range = place.ranges[(to + 1) % flight::kRanges];
    const bool known = flight::ConditionOf(range) == flight::Condition::kWhole && range.level == to + 2;
    range.level = known ? to + 1 : 0;
    flight::Seal(range);
  }
}

void RecordCallEntered(const ThreadState& thread, const CollectiveEvent& call,
                       std::string_view operation) noexcept {
  if (call.comm != 0) AddCall(TakePlace(call.comm), thread, call, operation);
}

void RecordCallLeft(const ThreadState& thread, const CollectiveEvent& call,
                    std::string_view operation) noexcept {
  constexpr int32_t kInProgress = 7;  // ncclInProgress
  if (call.result != 0 && call.result != kInProgress)
    RecordFailure(thread, {flight::FailureKind::kNccl, call.result, 0, operation.data()});
  if (call.comm == 0) return;
  flight::CommunicatorPlace& place = TakePlace(call.comm);
  flight::Call* found = nullptr;
  for (uint64_t back = 0; back < flight::kCalls && found == nullptr; ++back) {  // mostly the first
    flight::Call& record = place.last[(place.calls - back) % flight::kCalls];
    if (record.number != 0 && record.sequence == call.seq && record.entered == call.issue_ns) found = &record;
  }
  if (found == nullptr) {
    // Of a group's many calls the last are kept. One that no wrapper saw enter is younger than all of them.
    const flight::Call& newest = place.last[place.calls % flight::kCalls];
    if (newest.number != 0 && newest.entered >= call.issue_ns) return;
    AddCall(place, thread, call, operation);
    found = &place.last[place.calls % flight::kCalls];
  }
  found->left = call.return_ns > call.issue_ns ? call.return_ns : call.issue_ns;
  found->result = call.result;
  flight::Seal(*found);
}

void RecordCommunicator(const CommunicatorEvent& event, std::string_view name) noexcept {
  if (event.id == 0) return;
  flight::Communicator& record = TakePlace(event.id).communicator;
  record.hash = event.hash;
  record.stamp = event.time_ns;
  record.rank = event.rank;
  record.ranks = event.ranks;
  record.state = event.state;
  if (!name.empty()) FillText(record.name, name);
  flight::Seal(record);
}

void RecordFailure(const ThreadState& thread, const FailedCall& failed) noexcept {
  flight::Process& moments = Moments();
  const uint64_t number = ++moments.failure_count;
  flight::Failure& record = moments.failures[number % flight::kFailures];
  record.number = number;
  record.stamp = Stamp();
  record.bytes = failed.bytes;
  record.code = failed.code;
  record.kind = static_cast<uint32_t>(failed.kind);
  record.tid = thread.tid;
  record.reserved = 0;
  FillText(record.call, failed.name == nullptr ? std::string_view() : std::string_view(failed.name));
  flight::Seal(record);
}

void RecordReading() noexcept {
  if (looks_left > 0) {
    --looks_left;
    TakeLateCommunicators();
  }
  flight::Process& moments = Moments();
  const uint64_t number = ++readings;
  flight::Reading& record = moments.readings[number == 1 ? 0 : 1 + number % 2];
  record.number = number;
  record.stamp = Stamp();
  record.realtime_ns = NowNs();
  record.monotonic_ns = KernelClockNs(CLOCK_MONOTONIC);
  record.threads = static_cast<uint32_t>(UsedThreads());
  record.displaced = displaced.load(std::memory_order_relaxed);
  flight::Seal(record);
}

flight::Stack& BeginStack() noexcept {
  flight::Process& moments = Moments();
  flight::Stack& stack = moments.stacks[++moments.stack_count % 2];
  stack.number = moments.stack_count;
  return stack;
}

void EndStack(flight::Stack& stack) noexcept { flight::Seal(stack); }

bool AdoptRing(OwnDescriptor& descriptor) noexcept {
  struct stat status {};
  const bool usable =
      rings_adopted < kMostRings && descriptor.StillOurs() && fstat(descriptor.get(), &status) == 0 &&
      S_ISREG(status.st_mode) && status.st_size == off_t{flight::kRingBytes} &&
      status.st_blocks * 512 >= off_t{flight::kRingBytes} &&  // a store to a hole may be a SIGBUS
      ChargeMemory(flight::kRingBytes, MemoryUse::kNeeded);
  void* const memory =
      usable ? mmap(nullptr, flight::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0)
             : MAP_FAILED;
  descriptor.Close();
  if (memory == MAP_FAILED) {
    if (usable) ReleaseMemory(flight::kRingBytes);
    return false;
  }
  auto* const ring = static_cast<flight::Ring*>(memory);
  if (ring->owner.magic != flight::kMagic || ring->owner.version != flight::kVersion ||
      flight::ConditionOf(ring->owner) != flight::Condition::kWhole) {
    UnmapMemory(memory, flight::kRingBytes);
    return false;
  }
  // Threads may still be writing to the memory before it, which therefore stays.
  before_ring = &Moments();
  CopyMoments(ring->process, *before_ring);
  lifecycle_page.shared_ring.store(memory, std::memory_order_release);
  ++rings_adopted;
  looks_left = 4;
  return true;
}

}  // namespace gpuprobe::injector
