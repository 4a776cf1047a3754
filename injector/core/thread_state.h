// Per-thread state of the probe: re-entrancy, the event ring, open ranges, and a slot for NCCL's calls.
//
// One struct, so that a callback finds everything with a single thread-local load. Owned by its thread; other
// threads read only the atomics. Allocation: none (a static pool that the kernel backs page by page; one
// thread-local pointer in static TLS, because the block of static TLS that a dlopened library may use is
// small and shared; further parts of the pool are mapped when more threads come). Failure: beyond kMaxThreads
// threads at once, or when the kernel refuses memory, CurrentThread() is one shared state that no guard
// enters; what it would have recorded counts as LOSS_THREAD_SLOTS_FULL.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

class EventRing;

inline constexpr int kMaxRangeDepth = 64;
inline constexpr int kThreadsPerPart = 512;
inline constexpr int kMaxThreads = 256 * kThreadsPerPart;
inline constexpr uint32_t kHostCostSampling = 64;  // one guarded event in this many is timed
// More than any event takes; a longer one means the thread was interrupted, which is not our cost.
inline constexpr uint64_t kMaxJudgedNs = 10'000;

// A count that only its thread changes and others read, so that no instruction has to lock the bus.
class OwnersCount {
 public:
  OwnersCount& operator=(int value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  OwnersCount& operator++() noexcept { return *this = *this + 1; }
  OwnersCount& operator--() noexcept { return *this = *this - 1; }
  operator int() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int> value_{0};
};

// A value that only its thread changes and others read.
template <typename T>
class OwnersValue {
 public:
  OwnersValue& operator=(T value) noexcept {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_{};
};

// The function of a library's that a thread is in. Others read name, time and name again: a call that changed
// meanwhile is not known.
struct CurrentCall {
  OwnersValue<const char*> name;  // a constant of that library, or of ours; null: in none
  OwnersValue<uint64_t> since;    // stamp

  void Begin(const char* function, uint64_t stamp) noexcept {
    since = stamp;
    name = function;
  }
  void End() noexcept { name = nullptr; }
};

inline constexpr char kNoEntry = 0;  // instead of a Guard: none ever lets the thread in

// Room for the state of NCCL's calls (capture/nccl/thread_calls.h), which only that layer reads. It starts as
// zeros, and thread_end_hook leaves it as the place's next thread needs it.
struct NcclSlot {
  alignas(8) unsigned char bytes[176] = {};
};

struct ThreadState {
  std::atomic<const void*> open_guard{nullptr};  // our own code runs on this thread: the Guard, or &kNoEntry
  bool asks_library = false;                     // see AskingLibrary
  bool ring_refused = false;                     // no ring was free: events go into the shared ones
  uint32_t rings_given_back = 0;                 // when it was refused
  EventRing* ring = nullptr;                     // claimed on the first event
  OwnersValue<uint32_t> tid;
  OwnersValue<uint32_t> thread_id;  // ThreadDef.id; 0: it has not emitted anything yet
  uint32_t place = 0;               // in the pool
  uint8_t stack_looks = 0;          // in vain (program_memory.cc)
  uintptr_t stack_from = 0;         // the thread's stack, as far as it was in use and looked at
  uintptr_t stack_to = 0;

  // Open push/pop ranges, innermost last. Beyond kMaxRangeDepth only the depth is kept, and the loss counted.
  int range_depth = 0;
  uint64_t range_ids[kMaxRangeDepth] = {};
  uint16_t range_domains[kMaxRangeDepth] = {};  // index in the domain table: each domain has its own stack

  OwnersCount nccl_call_depth;         // inside an intercepted nccl* function
  bool works_for_application = false;  // it has called NCCL, or launched a kernel that is not NCCL's
  NcclSlot nccl;

  // Runtime-API allocation calls that contain a driver call which was counted already.
  uint32_t last_allocation_correlation = 0;
  uint64_t memory_call_began_ns = 0;  // entry of the driver call that obtains or releases memory
  uint32_t last_launch_correlation = 0;
  std::atomic<uint32_t> newest_launch{0};   // correlation id, for other threads
  bool launch_is_timed = false;             // the current one
  OwnersValue<uint64_t> launch_entered_ns;  // stamp of the latest one; 0: none
  CurrentCall driver_call;         // `since` is not set for launches: launch_entered_ns is when they begin
  CurrentCall nccl_call;           // the outermost
  uint64_t slow_call_entered = 0;  // stamp, of the slow function that the thread is in; 0: none
  uint32_t slow_call_correlation = 0;
  uint32_t slow_call = 0;            // callback id
  uint32_t instantiating_graph = 0;  // number of the CUDA graph being instantiated, 0: none
  uint32_t graph_copy = 0;           // correlation id of the call that copies a graph's nodes; 0: none
  bool graph_copy_is_child = false;  // the copy goes into another graph
  uint64_t graph_memory_graph = 0;   // graph in which the running call made an allocating or releasing node
  uint32_t graph_node_type = 0;      // CUgraphNodeType of the node being made

  // Own cost on this thread, written by the guard, read by the probe's thread. They outlive the thread: the
  // pool's next owner adds to them.
  std::atomic<uint64_t> host_events{0};
  std::atomic<uint64_t> host_judged_ns{0};  // of one event in kHostCostSampling, at most kMaxJudgedNs of each
  std::atomic<uint64_t> host_interrupted_ns{0};  // what these took beyond that
  uint64_t sample_start_ns = 0;                  // monotonic; 0: this event is not timed

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

// Called on a thread that ends, before its state goes back to the pool. Null: no hook.
extern std::atomic<void (*)(ThreadState& thread) noexcept> thread_end_hook;

int UsedThreads() noexcept;
ThreadState& ThreadAt(int index) noexcept;

// Innermost open push/pop range of this thread that has a record, 0 if none: ranges that were opened while
// the probe was off, or found no room in the ring, have none.
inline uint64_t InnermostRange(const ThreadState& state) noexcept {
  for (int i = state.range_depth < kMaxRangeDepth ? state.range_depth : kMaxRangeDepth; i > 0; --i) {
    if (state.range_ids[i - 1] != 0) return state.range_ids[i - 1];
  }
  return 0;
}

// Innermost range of the process's main thread; other threads' launches outside any range belong to it.
extern std::atomic<uint64_t> main_thread_range;

// Calls visit for every state that was ever used, also those whose threads have ended.
template <typename Visit>
void ForEachThread(Visit visit) noexcept {
  for (int i = 0; i < UsedThreads(); ++i) visit(ThreadAt(i));
}

// The thread enters an NCCL function; it leaves by --nccl_call_depth.
void EnterNccl(ThreadState& thread) noexcept;

// Whether some thread is inside an NCCL function, and may wait for NCCL's own threads there.
bool AnyThreadInNccl() noexcept;

// Whether this thread now allocates on NCCL's behalf: inside an application's NCCL call, or on an NCCL thread
// that works for one. An NCCL thread has never called NCCL nor launched a kernel that is not NCCL's; an
// application thread that allocates before it has done either, while another one is in NCCL, is mistaken for
// one.
inline bool AllocatesForNccl(const ThreadState& state) noexcept {
  return state.nccl_call_depth > 0 || (!state.works_for_application && AnyThreadInNccl());
}

// Sums over all threads that are or were.
struct HostCost {
  uint64_t events = 0;
  uint64_t judged_ns = 0;       // of the timed events
  uint64_t interrupted_ns = 0;  // likewise

  // The cost compared with the budget. It leaves out interruptions: we do not control how long a thread loses
  // the processor.
  uint64_t budgeted_ns() const noexcept { return judged_ns * kHostCostSampling; }
  // An interruption was seen once and counts once: one in a timed event says nothing about the others.
  uint64_t estimated_ns() const noexcept { return budgeted_ns() + interrupted_ns; }
};
HostCost TotalHostCost() noexcept;

}  // namespace gpuprobe::injector
