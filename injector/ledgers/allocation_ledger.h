// Tracks what is allocated, and matches each release with its allocation, from the calls of all threads.
//
// The drain orders events by time, but that is not enough: an address may be reused before the thread that
// released it has reported that, even several times if that thread does not get to run, and a release may be
// reported before the allocation that another thread made. So calls are matched by their times: an allocation
// exists from its return, a release takes effect from its call's begin, and both stamps come from one clock.
// A release that began before the allocation at its address existed is a late event for the previous one,
// whose end was recorded when its address was reused. A release of unknown memory waits a second for its
// allocation.
//
// Thread: the draining one. Allocation: mappings, on growth. Failure: an allocation that finds no place is
// not recorded, so that no level stays too high because its release is missing, and LOSS_DEFINITIONS_FULL is
// counted; a release of unknown memory is sent with 0 bytes and counted.
#pragma once

#include <cstdint>

#include "injector/base/flat_map.h"
#include "injector/core/events.h"
#include "injector/core/small_run.h"
#include "injector/ledgers/graph_memory.h"
#include "injector/ledgers/physical_memory.h"
#include "injector/rows/batch_builder.h"

namespace gpuprobe::injector {

constexpr uint64_t kNever = UINT64_MAX;  // a time

class AllocationLedger {
 public:
  explicit AllocationLedger(BatchBuilder* builder) noexcept : builder_(builder) {}

  // An allocation or a release.
  void Take(const AllocationEvent& event, uint32_t thread) noexcept;
  void Take(const PhysicalMemoryEvent& event, uint32_t thread) noexcept;
  // Everything that was allocated in it goes with it, before the call returns.
  void ContextEnded(const ContextEndEvent& event, uint32_t thread) noexcept;

  void Take(const GraphMemoryNodeEvent& event) noexcept;
  void GraphInstantiated(uint64_t graph, uint64_t exec) noexcept { graph_memory_.Instantiated(graph, exec); }
  void GraphMoved(uint64_t graph, uint64_t child) noexcept { graph_memory_.Moved(graph, child); }
  void GraphLaunched(const GraphCallEvent& event, uint32_t thread) noexcept;
  void GraphDestroyed(uint64_t graph) noexcept { graph_memory_.GraphEnded(graph); }
  void ExecDestroyed(const GraphCallEvent& event, uint32_t thread) noexcept;
  void ExecGone(const GraphCallEvent& event, uint32_t thread) noexcept;

  // All that happened before `until_ns` has been taken; UINT64_MAX: there will be nothing more.
  void Settle(uint64_t until_ns) noexcept;

 private:
  struct LiveMemory {
    uint64_t address;
    uint64_t bytes;
    uint64_t context;
    uint64_t since_ns;
    uint64_t ending_ns;  // its context began to end; 0: it did not
    int32_t device;
    uint8_t memory;
    uint8_t what;
  };
  struct EndingContext {
    uint64_t context;
    uint64_t began_ns;
  };
  struct EarlyRelease {
    AllocationEvent event;
    uint32_t thread;
  };

  void Allocated(const AllocationEvent& event, uint32_t thread) noexcept;
  void Released(const AllocationEvent& event, uint32_t thread) noexcept;
  void PhysicalEnded(uint64_t handle, const PhysicalMemoryEvent& event, uint32_t thread) noexcept;
  void HandleTaken(uint64_t handle, uint64_t time_ns, uint64_t range_id, uint32_t thread) noexcept;
  void Bound(const PhysicalMemoryEvent& event, uint32_t thread) noexcept;
  void ArrayEnded(const AllocationEvent& event, uint32_t thread) noexcept;
  bool MeetsOwed(uint64_t key) noexcept;
  void Owe(uint64_t key) noexcept;
  void Park(uint64_t key, const AllocationEvent& event, uint32_t thread) noexcept;
  void Unknown(const AllocationEvent& event, uint32_t thread) noexcept;
  // A record of its own, or part of a run of small ones.
  void Record(const AllocationEvent& event, uint32_t thread) noexcept;
  uint64_t TellingTime(uint64_t time_ns, bool small) noexcept;
  void EndSmallRun() noexcept;
  void EndContext(const EndingContext& ending, uint64_t time_ns, uint32_t thread) noexcept;
  void SettleContexts(uint64_t until_ns) noexcept;
  // `began_ns`: when it can have been released at the earliest, 0 if that is when it was.
  void RecordRelease(const LiveMemory& memory, uint64_t began_ns, uint64_t time_ns, uint64_t range_id,
                     uint32_t thread) noexcept;
  void GraphOwns(const GraphCallEvent& event, const GraphMemory::Own& own, uint32_t thread) noexcept;

  BatchBuilder* builder_;
  FlatMap<LiveMemory> live_{1 << 20};
  FlatMap<uint32_t> owed_{1 << 16};       // releases that were recorded and not reported yet
  FlatMap<EarlyRelease> early_{1 << 12};  // reported before their allocations
  FlatMap<uint64_t> ending_{
      1 << 10};  // by thread, which destroys an executable graph: the devices that it has memory on
  FlatMap<EndingContext> ending_contexts_{1 << 10};  // by thread
  SmallRun small_run_;
  uint64_t last_ns_ = 0;         // the end of the last call that was recorded
  uint64_t last_began_ns_ = 0;   // and its begin: a launch, or the end of a context, has several parts
  uint64_t before_call_ns_ = 0;  // the end of the last one before that call
  uint64_t told_ns_ = 0;         // the time given to the last part; and whether it was a small one
  bool told_small_ = false;
  PhysicalMemory physical_;
  GraphMemory graph_memory_;
};

}  // namespace gpuprobe::injector
