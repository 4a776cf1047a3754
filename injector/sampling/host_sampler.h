// Notes what the threads that launch are in while the process launches nothing, and now and then while it
// does: the CUDA or NCCL call, the system call and its file, the kernel's view, and the Python stack.
//
//   newest launch of each thread ─► gap_watch.h: is a sample due? ─► of the thread that launched last; while
//   (thread_state.h)                                                 that waits: of the main thread, others
//                                                                    that launch, who has Python's lock
//
//   CurrentCall (thread_state.h) ─┐
//   /proc/self/task/TID ──────────┼─► wire::HostSampleRow, frames as a tree of definitions
//   PythonStack (stacks/) ────────┘
//
// Everything is seen from the probe's own thread: the program's threads run no code of ours for it, take no
// lock and are not stopped. What changes while it is looked at is torn and said to be; a thread that ends
// meanwhile has no sample. sample_budget.h bounds the cost.
//
// Thread: the probe's own. Allocation: mappings, when tables grow. Failure: what cannot be seen is not known,
// and what was not looked at has no sample.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/core/thread_state.h"
#include "injector/ledgers/stream.h"
#include "injector/sampling/gap_watch.h"
#include "injector/sampling/interpreter_search.h"
#include "injector/sampling/known_places.h"
#include "injector/sampling/last_stack.h"
#include "injector/sampling/sample_budget.h"
#include "injector/sampling/thread_files.h"
#include "stacks/python_stack.h"

namespace gpuprobe::injector {

class HostSampler {
 public:
  HostSampler(pid_t pid, Stream* stream) noexcept
      : pid_(static_cast<uint32_t>(pid)), stream_(stream), python_(pid, false) {}

  // Before the probe's thread starts. Without it nothing is sampled.
  void Enable() noexcept { enabled_ = true; }

  // Looks if it is time. `stop`: when it is set, the rest of a look is left out.
  void Tick(const std::atomic<bool>& stop) noexcept;
  // At most `most_ms` from now on until the next look.
  int64_t RestMs(int64_t most_ms) const noexcept;

 private:
  static constexpr size_t kMostTargets = SampleBudget::kMostOfALook - 1;  // and who has Python's lock
  static constexpr int kLooksAtOnce = 64;                                 // at places of the thread pool

  // A thread without a state of its own: it has not called CUDA.
  struct Other {
    uint32_t tid = 0;
    uint32_t id = 0;
  };
  struct Launcher {
    ThreadState* thread = nullptr;
    uint64_t stamp = 0;
    uint64_t launched_ns = 0;
  };
  struct Target {
    ThreadState* thread = nullptr;  // null: the main thread, which has none
    uint32_t tid = 0;
    uint32_t id = 0;  // ThreadDef.id
    bool has_python = false;
    stacks::PythonThread python;
  };

  void Look(const std::atomic<bool>& stop, uint64_t monotonic_ns) noexcept;
  void FindLaunchers(uint64_t now_ns) noexcept;
  void NoteLauncher(ThreadState& thread, uint64_t now_ns) noexcept;
  size_t ChooseTargets(uint64_t now_ns, Target* targets) noexcept;
  bool AddTarget(ThreadState* thread, Target* targets, size_t* count) const noexcept;
  void FindPython(Target* targets, size_t count, uint64_t monotonic_ns) noexcept;
  struct Seen {
    bool waits = false;     // for another thread, as far as is known
    bool has_line = false;  // in Python code, or no thread has one
    uint64_t lock_holder =
        0;  // the state of the thread that has the interpreter's lock, if it waits for that
  };
  Seen Sample(const Target& target, uint64_t now_ns, uint64_t monotonic_ns,
              const GapWatch::Sample& sample) noexcept;
  stacks::PythonStack& StackFor(uint32_t tid) noexcept;
  wire::StackState ReadPython(const Target& target, stacks::PythonStack& stack) noexcept;
  uint32_t DefineFrames(const stacks::PythonStack& stack) noexcept;
  uint32_t DefineFile(int32_t descriptor) noexcept;
  bool FindHolder(uint64_t state, Target* target) noexcept;
  void DefineMainThread() noexcept;
  void DefineThread(uint32_t id, uint32_t tid, const char* comm) noexcept;
  static void TakeCall(const ThreadState& thread, const char** name, uint64_t* since) noexcept;

  const uint32_t pid_;
  Stream* stream_;
  bool enabled_ = false;

  GapWatch watch_;
  SampleBudget budget_;
  uint64_t next_ns_ = 0;       // CLOCK_MONOTONIC
  uint64_t ended_cpu_ns_ = 0;  // of the thread, at the end of the last tick
  uint64_t clock_read_ns_ = 0;

  // The threads that launched last and have not ended, the latest first.
  Launcher launchers_[kMostTargets];
  uint64_t launched_ns_ = 0;  // the latest of the process's launches; 0: none yet
  int next_place_ = 0;
  // That had the interpreter's lock while one that launches waited for it. Of one beyond there is no sample.
  Other others_[64];
  size_t other_count_ = 0;
  ThreadState* main_ = nullptr;
  uint32_t main_id_ = 0;  // while the main thread has no state of its own

  stacks::PythonProcess python_;
  stacks::Unreadable unreadable_ = stacks::Unreadable::kNoInterpreter;
  InterpreterSearch search_;
  uint64_t searched_ns_ = 0;
  // What was read of a thread makes the next reading cheap: one for each of two threads.
  struct Reading {
    uint32_t tid = 0;
    stacks::PythonStack stack;
  };
  Reading readings_[2];
  size_t next_reading_ = 0;
  KnownPlaces places_;
  LastStack last_stack_;
  ThreadFiles files_;
  FlatMap<uint8_t> known_files_{4096};  // by their hashes
};

}  // namespace gpuprobe::injector
