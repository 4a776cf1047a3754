// Counts the collectives on the largest communicator, the one thing besides a step marker that means the same
// on all ranks of a job: call 1,200 on one rank is call 1,200 on every other.
//
// At level idle it also remembers what the last kRemembered calls were, so that a capture can tell how many
// of them are a step. Example: AllReduce of 4 MiB, 4 MiB, 1 MiB, and the same again, is three calls a step;
// the step begins with the call before which the longest pause is. Of equal calls, pauses alone show it.
//
// Thread: Note on the program's, inside a guard; everything else on the probe's own. Allocation: none; a
// static table. Failure: a call that is not noted makes the period unknown for a while.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

class CallClock {
 public:
  static constexpr uint64_t kRemembered = 2048;

  // The call with this number on a communicator of so many ranks (from 2 on) has been issued, at `stamp`.
  // `kind`: equal for calls of the same operation and size.
  void Note(uint32_t communicator, int32_t ranks, uint64_t number, uint32_t kind, uint64_t stamp) noexcept;

  // Communicator.id of the largest one on which calls were issued; 0: none.
  uint32_t communicator() const noexcept {
    return static_cast<uint32_t>(watched_.load(std::memory_order_acquire));
  }
  // The number of the next call on it.
  uint64_t calls() const noexcept { return calls_.load(std::memory_order_seq_cst); }

  struct Period {
    uint32_t calls = 0;  // 0: they do not repeat
    uint64_t begin = 0;  // number of a call that begins a step
  };
  // Looks at all that is remembered: some milliseconds at most.
  Period FindPeriod() const noexcept;

  void Reset() noexcept;

 private:
  struct Call {
    std::atomic<uint64_t> what{0};  // the number's low half, and its kind
    std::atomic<uint64_t> stamp{0};
  };
  static bool IsKnown(uint64_t number) noexcept;
  static uint32_t KindOf(uint64_t number) noexcept;
  static uint64_t PauseBefore(uint64_t number, uint64_t period, uint64_t rounds) noexcept;
  static bool FindBegin(uint64_t end, uint64_t known, uint64_t period, uint64_t* begin) noexcept;
  static constexpr uint64_t WhatOf(uint64_t number, uint32_t kind) noexcept { return number << 32 | kind; }
  void Watch(uint64_t watched, uint64_t candidate) noexcept;

  static Call remembered[kRemembered];  // zeros, so that they take no room in the library's file

  std::atomic<uint64_t> watched_{0};  // ranks, and Communicator.id in the low half
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint32_t> on_others_{0};  // calls on communicators that are as large, since one on this
};

// The process's own.
extern CallClock call_clock;

}  // namespace gpuprobe::injector
