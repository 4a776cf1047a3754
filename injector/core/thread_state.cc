#include "injector/core/thread_state.h"

#include <limits.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "injector/base/mapping.h"
#include "injector/core/event_ring.h"

namespace gpuprobe::injector {

constinit std::atomic<uint64_t> main_thread_range{0};
constinit std::atomic<void (*)(ThreadState& thread) noexcept> thread_end_hook{nullptr};
constinit thread_local ThreadState* current_thread __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

// Half a megabyte of zero pages, of which a thread touches one. Most programs need no other part.
constinit ThreadState first_part[kThreadsPerPart];
constexpr int kParts = kMaxThreads / kThreadsPerPart;
constinit std::atomic<ThreadState*> parts[kParts] = {first_part};
constinit std::atomic<int> lowest_free{0};  // about where the first free state is
constinit ThreadState refused;              // for refused threads: has no tid, and no guard enters it
constinit std::atomic<int> highest_used{0};
constinit std::atomic<int> end_of_nccl_places{0};  // no thread behind has ever called NCCL

// Processes have 1,024 keys. The C library hands out the lowest that is free, so that a high one says that
// few are left, which are the program's.
constexpr pthread_key_t kKeysLeftToProgram = 64;

pthread_key_t exit_key;
constinit std::atomic<int> exit_key_state{0};  // 0: none, 1: being made, 2: there, 3: failed

ThreadState* PartOf(int place) noexcept {
  return parts[place / kThreadsPerPart].load(std::memory_order_acquire);
}

// Maps the part if no thread has yet. Null: the account or the kernel refuses.
ThreadState* MakePartOf(int place) noexcept {
  ThreadState* known = PartOf(place);
  if (known != nullptr) return known;
  constexpr size_t kBytes = sizeof(ThreadState) * kThreadsPerPart;
  void* memory = MapMemory(kBytes, MemoryUse::kNeeded);
  if (memory == nullptr) return nullptr;
  auto* part = static_cast<ThreadState*>(memory);  // of zeros, as a new state is
  if (parts[place / kThreadsPerPart].compare_exchange_strong(known, part)) return part;
  UnmapMemory(memory, kBytes);
  return known;
}

ThreadState* ClaimPlace(int from, int to) noexcept {
  for (int place = from; place < to; ++place) {
    ThreadState* part = MakePartOf(place);
    if (part == nullptr) return nullptr;
    ThreadState& state = part[place % kThreadsPerPart];
    if (state.in_use.load(std::memory_order_relaxed) ||
        state.in_use.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    state.place = static_cast<uint32_t>(place);
    int highest = highest_used.load(std::memory_order_relaxed);
    while (highest < place + 1 && !highest_used.compare_exchange_weak(highest, place + 1)) {
    }
    lowest_free.compare_exchange_strong(from, place + 1, std::memory_order_relaxed);
    return &state;
  }
  return nullptr;
}

void GiveBack(ThreadState& state) noexcept {
  const auto place = static_cast<int>(state.place);
  state.in_use.store(false, std::memory_order_release);
  int lowest = lowest_free.load(std::memory_order_relaxed);
  while (place < lowest && !lowest_free.compare_exchange_weak(lowest, place, std::memory_order_relaxed)) {
  }
}

// The thread ends: its ring goes to the consumer, its state to the pool.
void ReleaseThread(void* value) noexcept {
  auto* state = static_cast<ThreadState*>(value);
  current_thread = nullptr;
  if (state->ring != nullptr) ReleaseRing(*state->ring);
  state->nccl_call_depth = 0;  // it may have left by exiting
  if (const auto hook = thread_end_hook.load(std::memory_order_relaxed); hook != nullptr) {
    hook(*state);
  } else {
    state->nccl = {};
  }
  state->ring = nullptr;
  GiveBack(*state);
}

bool ExitKeyReady() noexcept {
  int state = exit_key_state.load(std::memory_order_acquire);
  if (state >= 2) return state == 2;
  if (state == 0 && exit_key_state.compare_exchange_strong(state, 1)) {
    bool made = pthread_key_create(&exit_key, ReleaseThread) == 0;
    if (made && exit_key >= PTHREAD_KEYS_MAX - kKeysLeftToProgram) {
      pthread_key_delete(exit_key);
      made = false;
    }
    exit_key_state.store(made ? 2 : 3, std::memory_order_release);
    return made;
  }
  // Another thread is making it, or made it meanwhile. A thread that misses it keeps its slot for the life of
  // the process.
  return exit_key_state.load(std::memory_order_acquire) == 2;
}

void Reset(ThreadState& state) noexcept {
  state.open_guard.store(nullptr, std::memory_order_relaxed);
  state.ring_refused = false;
  state.ring = nullptr;
  state.tid = static_cast<uint32_t>(syscall(SYS_gettid));
  state.thread_id = 0;
  state.stack_looks = 0;
  state.stack_from = 0;
  state.stack_to = 0;
  state.range_depth = 0;
  state.nccl_call_depth = 0;
  state.works_for_application = false;
  state.last_allocation_correlation = 0;
  state.memory_call_began_ns = 0;
  state.last_launch_correlation = 0;
  state.launch_is_timed = false;
  state.launch_entered_ns = 0;
  state.driver_call.End();
  state.nccl_call.End();
  state.slow_call_entered = 0;
  state.instantiating_graph = 0;
  state.graph_copy = 0;
  state.graph_copy_is_child = false;
  state.graph_memory_graph = 0;
  state.sample_start_ns = 0;
}

}  // namespace

ThreadState& ClaimThreadState() noexcept {
  const int from = lowest_free.load(std::memory_order_relaxed);
  ThreadState* state = ClaimPlace(from, kMaxThreads);
  if (state == nullptr) state = ClaimPlace(0, from);
  if (state == nullptr) {
    refused.open_guard.store(&kNoEntry, std::memory_order_relaxed);
    return refused;
  }
  Reset(*state);
  if (current_thread != nullptr) {  // a signal handler was quicker
    GiveBack(*state);
    return *current_thread;
  }
  current_thread = state;
  // Keys below 32 live in the thread's own block; a later one may make the C library allocate, once a
  // thread.
  if (ExitKeyReady()) pthread_setspecific(exit_key, state);
  return *state;
}

int UsedThreads() noexcept { return highest_used.load(std::memory_order_relaxed); }
ThreadState& ThreadAt(int index) noexcept { return PartOf(index)[index % kThreadsPerPart]; }

void EnterNccl(ThreadState& thread) noexcept {
  ++thread.nccl_call_depth;
  const int end = static_cast<int>(thread.place) + 1;
  int known = end_of_nccl_places.load(std::memory_order_relaxed);
  while (known < end && !end_of_nccl_places.compare_exchange_weak(known, end)) {
  }
}

bool AnyThreadInNccl() noexcept {
  for (int i = 0; i < end_of_nccl_places.load(std::memory_order_relaxed); ++i) {
    if (ThreadAt(i).nccl_call_depth > 0) return true;
  }
  return false;
}

HostCost TotalHostCost() noexcept {
  HostCost total;
  ForEachThread([&total](const ThreadState& thread) noexcept {
    total.events += thread.host_events.load(std::memory_order_relaxed);
    total.judged_ns += thread.host_judged_ns.load(std::memory_order_relaxed);
    total.interrupted_ns += thread.host_interrupted_ns.load(std::memory_order_relaxed);
  });
  return total;
}

}  // namespace gpuprobe::injector
