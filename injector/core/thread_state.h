// What the probe knows about one application thread: re-entrancy, its event ring, its open ranges, and the
// NCCL group it is in.
//
// One struct so that a callback finds everything with a single thread-local load. Owned by its thread; other
// threads read only what is atomic. Allocation: none (a static pool that the kernel backs page by page; one
// thread-local pointer in static TLS, because the block of static TLS that a dlopened library may use is
// small and shared). Failure: beyond kMaxThreads threads at once, CurrentThread() is one shared state that no
// guard enters.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

class EventRing;
namespace nccl {
struct CallBatch;
struct Awaited;
}  // namespace nccl

inline constexpr int kMaxRangeDepth = 64;
inline constexpr uint32_t kCallCopies = 16;
inline constexpr int kMaxThreads = 4096;
inline constexpr uint32_t kHostCostSampling = 64;  // one guarded event in this many is timed
// More than any event takes: a thread that is interrupted in one costs nothing of ours.
inline constexpr uint64_t kMaxJudgedNs = 10'000;

struct ThreadState {
  int guard_depth = 0;            // > 0: our own code runs on this thread
  bool ring_refused = false;      // no ring was to be had: LOSS_THREAD_SLOTS_FULL is counted for each event
  uint32_t rings_given_back = 0;  // when it was refused
  EventRing* ring = nullptr;      // claimed on the first event
  uint32_t tid = 0;

  // Push/pop ranges that are open, innermost last. Beyond kMaxRangeDepth only the depth is kept, and the loss
  // counted.
  int range_depth = 0;
  uint64_t range_ids[kMaxRangeDepth] = {};
  uint16_t range_domains[kMaxRangeDepth] = {};  // index in the domain table: each domain has its own stack

  // NCCL: depth of group calls, and where calls and launches are noted while an NCCL call or group of the
  // application runs.
  int nccl_call_depth = 0;             // inside an intercepted nccl* function
  bool works_for_application = false;  // it has called NCCL, or launched a kernel that is not NCCL's
  int nccl_group_depth = 0;            // GroupStart minus GroupEnd, as the application called them
  nccl::CallBatch* nccl_batch = nullptr;
  // Calls of a group that began or ended past us (injector/capture/nccl/torn_groups.h).
  std::atomic<nccl::CallBatch*> nccl_held{nullptr};
  // Of one that has ended past us, and of whose calls NCCL may still tell.
  std::atomic<nccl::CallBatch*> nccl_ended{nullptr};
  bool nccl_group_ended = false;   // until the next call; the probe's thread may have reported it
  uint32_t nccl_ended_looks = 0;   // of the probe's thread
  uint32_t nccl_patches_seen = 0;  // LatePatches() when the thread was last seen between two groups
  bool nccl_api_open = false;      // NCCL told of a call, and not yet that its group has ended
  nccl::Awaited* nccl_api_awaited = nullptr;  // of its batch
  bool nccl_api_group = false;  // a group that NCCL tells its plugin of, and no wrapper saw begin
  // The last kernel of NCCL's that was launched outside of these, for what NCCL tells its profiler plugin.
  uint32_t nccl_plugin_correlation = 0;  // 0: none, or its calls have all been told
  uint64_t nccl_plugin_plan = 0;         // 0: no call was told yet
  uint64_t nccl_plugin_launch_ns = 0;
  bool nccl_plugin_told = false;  // some call of it
  uint64_t nccl_copies_plan = 0;  // what is copied now is of one-sided calls in this plan; 0: it is not
  uint32_t nccl_copies = 0;       // launched for it so far, or captured
  uint32_t nccl_last_copy = 0;    // correlation id, until it is certain that it is not captured
  bool nccl_copies_captured = false;
  // Correlation ids of the copies that NCCL has launched for the call, or group, that is being made: the
  // first ones and the last. It may launch nothing else for it.
  uint32_t nccl_call_copies[kCallCopies] = {};
  uint32_t nccl_call_copy_count = 0;  // of these
  // Handles that somebody else's plugin gave the group's events that are open
  // (injector/capture/nccl/plugin_chain.h).
  void* nccl_plugin_group = nullptr;
  void* nccl_plugin_api_group = nullptr;
  // On a thread of NCCL's: the calls that its last launch was for (injector/capture/nccl/awaited.h).
  nccl::Awaited* nccl_awaited = nullptr;
  uint64_t nccl_awaited_number = 0;

  // Runtime-API allocation calls that contain a driver call which was counted already.
  uint32_t last_allocation_correlation = 0;
  uint64_t memory_call_began_ns = 0;  // entry of the driver's call that obtains or releases memory
  uint32_t last_launch_correlation = 0;
  std::atomic<uint32_t> newest_launch{0};  // correlation id, for other threads
  uint32_t launch_weight = 0;              // of the launch that it is in and that is timed; 0: it is not
  uint64_t launch_entered_ns = 0;          // stamp
  uint32_t instantiating_graph = 0;        // number of the CUDA graph that it is making executable, 0: none
  uint32_t graph_copy = 0;                 // correlation id of the call that copies a graph's nodes; 0: none
  bool graph_copy_is_child = false;        // of a graph that it puts into another
  uint64_t graph_memory_graph = 0;  // of a node that allocates or releases, which the running call made
  uint32_t graph_node_type = 0;     // CUgraphNodeType of the node that it is making

  // Own cost on this thread, written by the guard, read by the probe's thread. They outlive the thread: the
  // pool's next owner adds to them.
  std::atomic<uint64_t> host_events{0};
  std::atomic<uint64_t> host_sampled_ns{0};  // of one event in kHostCostSampling
  std::atomic<uint64_t> host_judged_ns{0};   // likewise, at most kMaxJudgedNs of each
  uint64_t sample_start_ns = 0;              // monotonic; 0: this event is not timed

  std::atomic<bool> in_use{false};  // of the pool
};

// Initial-exec: no __tls_get_addr, and so no allocation on a thread's first access. Eight bytes of the static
// TLS reserve. Null until the thread's first event.
extern constinit thread_local ThreadState* current_thread __attribute__((tls_model("initial-exec")));

// A state for the calling thread, which has none yet.
ThreadState& ClaimThreadState() noexcept;

// The calling thread's state. Never null, no allocation.
inline ThreadState& CurrentThread() noexcept {
  return current_thread != nullptr ? *current_thread : ClaimThreadState();
}

int UsedThreads() noexcept;
ThreadState& ThreadAt(int index) noexcept;

// Innermost open push/pop range of this thread, 0 if none.
inline uint64_t InnermostRange(const ThreadState& state) noexcept {
  if (state.range_depth <= 0) return 0;
  return state.range_ids[(state.range_depth < kMaxRangeDepth ? state.range_depth : kMaxRangeDepth) - 1];
}

// Innermost range of the process's main thread, which other threads' launches belong to when they have none
// of their own.
extern std::atomic<uint64_t> main_thread_range;

// Threads that are inside a function of NCCL's, which may wait for threads of NCCL's own.
extern std::atomic<int32_t> threads_in_nccl;

// Whether NCCL allocates for itself what this thread allocates now: in a call of the application's, or on a
// thread of its own that works for one. Such a thread has never called NCCL nor launched a kernel of anybody
// else's; a thread of the application's that allocates before it has done either, while another one is in
// NCCL, is taken for one.
inline bool AllocatesForNccl(const ThreadState& state) noexcept {
  return state.nccl_call_depth > 0 ||
         (!state.works_for_application && threads_in_nccl.load(std::memory_order_relaxed) > 0);
}

// Calls visit for every state that was ever used, also those whose threads have ended.
template <typename Visit>
void ForEachThread(Visit visit) noexcept {
  for (int i = 0; i < UsedThreads(); ++i) visit(ThreadAt(i));
}

// Sums over all threads that are or were.
struct HostCost {
  uint64_t events = 0;
  uint64_t sampled_ns = 0;
  uint64_t judged_ns = 0;  // what the budget is held against
};
HostCost TotalHostCost() noexcept;

}  // namespace gpuprobe::injector
