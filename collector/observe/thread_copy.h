// A copy of a thread's registers and stack, for which it is stopped for some tens of microseconds.
//
// PTRACE_SEIZE and PTRACE_INTERRUPT: no signal is sent, neither the process nor its parent notices, and a
// frozen process stays frozen. A short-lived thread of ours does it, and the kernel lets go of what it traced
// when it ends, or when we are killed. System calls that the stop interrupts go on, those too that Linux
// would end with EINTR (epoll_wait): the time limit of such a call begins anew.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "stacks/process_memory.h"

namespace gpuprobe::observe {

enum class Stopped : uint8_t {
  kYes,
  kNotPermitted,
  kEnded,
  kNotInTime,  // it is in the kernel, and did not stop; it never was
  kNotAmd64,   // a 32-bit program, or this machine has other registers
};

struct ThreadCopy {
  static constexpr size_t kRegisters =
      17;  // of x86_64, as DWARF numbers them; the last is the program counter
  static constexpr size_t kStackPointer = 7;

  Stopped stopped = Stopped::kNotPermitted;
  uint64_t stopped_ns = 0;  // at most: from when it was last seen to run until it was let go
  std::array<uint64_t, kRegisters> registers{};
  uint64_t stack_begin = 0;
  std::vector<char> stack;  // from the innermost frame on
};

// System calls that end with EINTR when a thread is stopped, although they have then done nothing: whoever
// stops a thread should have them begin anew. x86-64's numbers; false elsewhere.
bool CanBeginAnew(uint64_t call);

// Before a thread stops one of another process: so that it does not wait for a processor while that one waits
// for it. Where that is not permitted, the stop takes as long as the scheduler wants.
void TakePriority();

class ThreadCopier {
 public:
  static constexpr size_t kMostStack = size_t{1} << 20;
  // A thread that runs takes this long to stop if the machine is overloaded. It runs meanwhile.
  static constexpr uint64_t kMostWaitNs = 500'000'000;
  // What is not read by then is not read.
  static constexpr uint64_t kMostStoppedNs = 10'000'000;

  explicit ThreadCopier(pid_t pid) : memory_(pid), buffer_(kMostStack) {}

  // `stack_end` returns where the mapping that holds an address ends. `meanwhile` runs while the thread is
  // stopped, and should return before its argument, a time of CLOCK_MONOTONIC in nanoseconds.
  ThreadCopy Copy(pid_t tid, const std::function<uint64_t(uint64_t)>& stack_end,
                  const std::function<void(uint64_t)>& meanwhile);

 private:
  void Trace(pid_t tid, const std::function<uint64_t(uint64_t)>& stack_end,
             const std::function<void(uint64_t)>& meanwhile, ThreadCopy& copy, size_t& copied);
  size_t CopyStack(uint64_t from, uint64_t end, uint64_t until_ns);

  stacks::ProcessMemory memory_;
  uint64_t wait_left_ns_ = 6 * kMostWaitNs;  // for all threads together
  std::vector<char> buffer_;                 // allocated, and touched, before any thread is stopped
};

}  // namespace gpuprobe::observe
