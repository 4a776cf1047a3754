// What the kernel says of a thread of this process: its state, the system call that it is in, and how long it
// could run and had no processor.
//
// Five files of /proc/self/task stay open (kMostFiles): the system calls of some threads, and their
// time without a processor. Opening one takes the lowest free number for a moment, which a program may count
// on, so that happens at most twelve times a second. Whether a thread that is in a system call could be woken
// by a signal is not asked of a third file, but concluded (IsOfDisk). Thread: the probe's own. Allocation:
// none. Failure: what cannot be read is not known: without /proc, with another namespace's, for a process
// that may not be dumped, or when few descriptors are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/base/own_descriptor.h"

namespace gpuprobe::injector {

struct KernelView {
  wire::ThreadState state = wire::ThreadState::kThreadStateUnknown;
  int32_t system_call = -1;   // -1: in none, or not known
  int32_t descriptor = -1;    // of the system call; -1: it has none
  uint64_t sleeps_on = 0;     // address of the futex's word; 0: it sleeps on none
  uint64_t run_delay_ns = 0;  // since the last look at the thread
  bool ended = false;
};

// The call, its descriptor and its futex, from /proc/PID/syscall. True: the thread runs. "-1 0x0 0x0" has
// ended.
bool ParseSystemCall(std::string_view text, KernelView* view) noexcept;
// From /proc/PID/stat, where there is no syscall; "Z" and "X" have ended.
wire::ThreadState ParseState(std::string_view text, bool* ended) noexcept;
// From /proc/PID/schedstat.
uint64_t ParseRunDelay(std::string_view text) noexcept;

class ThreadFiles {
 public:
  // With two, it was not seen that a thread waits for a processor while another one is sampled, nor who has
  // Python's lock.
  static constexpr int kMostFiles = 5;

  // `id` tells apart threads that have the same tid one after the other. `now_ns` is of a clock that nobody
  // sets.
  KernelView Look(uint32_t tid, uint32_t id, uint64_t now_ns) noexcept;
  // What the descriptor refers to, as /proc/self/fd says, without the number of a pipe or socket.
  static std::string_view FileOf(int32_t descriptor, char* room, size_t bytes) noexcept;

  // Whether the kernel waits uninterruptibly for what the descriptor refers to: it does for files of a disk.
  static bool IsOfDisk(int32_t descriptor) noexcept;

 private:
  enum class Kind : uint8_t { kNone, kSystemCall, kState, kDelay };
  struct File {
    Kind kind = Kind::kNone;
    uint32_t tid = 0;
    uint32_t id = 0;
    uint64_t used_ns = 0;
    uint64_t delay_ns = 0;
    bool has_delay = false;
    OwnDescriptor file;
  };

  // The slot of that file; -1: it is not open.
  int Find(Kind kind, uint32_t tid, uint32_t id) const noexcept;
  // The slot that is the least missed: a free one, else that of the delay that was read the longest ago.
  int Oldest() const noexcept;
  bool Open(int slot, Kind kind, uint32_t tid, uint32_t id, uint64_t now_ns) noexcept;
  bool MayOpen(uint64_t now_ns) noexcept;
  void ReadDelay(uint32_t tid, uint32_t id, uint64_t now_ns, KernelView* view) noexcept;

  File files_[kMostFiles];
  uint64_t opened_ns_ = 0;
};

}  // namespace gpuprobe::injector
