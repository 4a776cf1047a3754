// The consumer of all event rings: turns what application threads reported into rows of the batch builder.
//
// The rings know only bytes, the builder only columns: here texts become ids, and opened ranges are matched
// with their ends. allocation_ledger.h matches releases with allocations. Thread: the probe's own, with the
// builder's lock. Allocation: mappings, when a table grows. Failure: a full table drops the record and counts
// LOSS_DEFINITIONS_FULL.
#pragma once

#include <cstdint>

#include "injector/base/flat_map.h"
#include "injector/core/event_ring.h"
#include "injector/ledgers/allocation_ledger.h"
#include "injector/ledgers/graph_plans.h"
#include "injector/rows/batch_builder.h"

namespace gpuprobe::injector {

class EventDrain {
 public:
  explicit EventDrain(BatchBuilder* builder) noexcept : builder_(builder) {}

  // Takes everything that was published before `until_ns`; UINT64_MAX takes all. Events of different threads
  // are taken in the order of their times, so `until_ns` should be a little in the past: an event is
  // published some time after its clock was read.
  void Drain(uint64_t until_ns) noexcept;

  // Adds the main thread's state and the process's input and output to the batch in progress.
  void NoteHostState() noexcept;

  // The process ends: ranges that are still open become rows that say so.
  void CloseOpenRanges(uint64_t now_ns) noexcept;

 private:
  struct OpenRange {
    uint64_t start_ns;
    uint64_t parent_id;
    uint32_t name;
    uint32_t domain;
    uint32_t thread;
    uint32_t category;
    uint64_t payload;
    uint32_t color;
    uint32_t payload_kind;
    uint16_t kind;
  };
  wire::RangeRow RangeOf(uint64_t id, const OpenRange& range, uint64_t end_ns, bool unclosed) const noexcept;
  static constexpr size_t kMaxThreadNameBytes = 64;
  struct GivenName {  // by the program, to one of its threads
    uint32_t tid;     // 0: free
    uint32_t bytes;
    char text[kMaxThreadNameBytes];
  };
  // The thread whose events are being read from a ring; the ring may have a new owner by now.
  struct Writer {
    uint32_t id = 0;  // ThreadDef.id
    uint32_t tid = 0;
    char name[16] = {};
  };
  struct Cursor {
    EventRing* ring = nullptr;
    uint32_t thread = 0;  // whose the event at `position` is
    uint64_t position = 0;
    uint64_t end = 0;
    uint64_t next_ns = 0;  // time of the event at `position`; UINT64_MAX: none left
  };

  void ThreadBegan(int slot, const ThreadBeginsEvent& event) noexcept;
  void ThreadEnded(int slot) noexcept;
  void DefineThread(const Writer& writer) noexcept;
  void NamedThread(const ThreadNameEvent& event, std::string_view name) noexcept;
  // Or the place for it; null when there is none.
  GivenName* GivenNameOf(uint32_t tid) noexcept;
  bool TellTimes(int slot, EventHeader* header, bool all) noexcept;
  uint32_t KnownThread(uint32_t thread_id, uint32_t otherwise) const noexcept;
  void TakeLaunches(int slot, EventRing& ring, uint64_t until_ns, Cursor* cursor) noexcept;
  void Launched(LaunchEvent event, uint32_t thread) noexcept;
  void LaunchTook(const LaunchTimeEvent& event) noexcept;
  void Advance(Cursor* cursor, uint64_t until_ns) noexcept;
  void Merge(Cursor* cursors, int count) noexcept;
  void Take(const EventHeader& header, uint32_t thread) noexcept;
  void AddRange(const wire::RangeRow& row) noexcept;
  void OpenedRange(const RangeOpenEvent& event, std::string_view name, uint32_t thread) noexcept;
  void ClosedRange(const RangeCloseEvent& event) noexcept;
  void Marked(const MarkEvent& event, std::string_view name, uint32_t thread) noexcept;
  void DriverCalled(const DriverCallEvent& event, uint32_t thread) noexcept;
  void OnGraphCall(const GraphCallEvent& event, uint32_t thread) noexcept;
  uint32_t OperationName(uint16_t op) noexcept;
  void Trace(const CollectiveEvent& event) noexcept;
  void CallTook(const CallTimeEvent& event) noexcept;
  void Collective(const CollectiveEvent& event, uint32_t thread) noexcept;
  void TookPayload(const RangePayloadEvent& event, std::string_view bytes) noexcept;
  void Communicator(const CommunicatorEvent& event, std::string_view name) noexcept;
  uint32_t MadeBy(uint16_t entry_point) noexcept;  // String
  void PlanLaunched(const PlanLaunchEvent& event) noexcept;
  uint32_t DomainName(uint64_t handle) noexcept;

  BatchBuilder* builder_;
  Writer writers_[kRingSlots] = {};    // of the next event of each ring
  uint64_t last_ns_[kRingSlots] = {};  // time of the last event that was looked at
  GivenName given_names_[kRingSlots] = {};
  static constexpr size_t kDefined = 4096;
  uint32_t defined_[kDefined] = {};  // ids of threads in shared rings that were defined lately, by their rest
  Cursor cursors_[kRingSlots] = {};
  FlatMap<OpenRange> open_ranges_{1 << 16};
  FlatMap<uint64_t> early_closes_{1 << 12};  // ranges whose close came before their open: range id -> end
  AllocationLedger allocations_{builder_};
  GraphPlans graph_plans_;
};

}  // namespace gpuprobe::injector
