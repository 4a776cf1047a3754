// Waits for a word of memory to change, with a time limit: between our own threads, and for them at exit.
//
// Time limits use the kernel's clock, because a preloaded library may replace the C library's by one that
// stands still. Thread: any. Allocation: none. Failure: the wait ends early or at its limit; the word says
// which.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gpuprobe::injector {

// By the kernel: a library may replace the C library's clock. For our own threads: a system call.
inline uint64_t KernelClockNs(clockid_t clock) noexcept {
  timespec now{};
  syscall(SYS_clock_gettime, clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}
inline int64_t MonotonicMs() noexcept {
  return static_cast<int64_t>(KernelClockNs(CLOCK_MONOTONIC) / 1'000'000);
}

// Sleeps while `word` is `value`, at most `milliseconds`.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t value, int64_t milliseconds) noexcept {
  if (milliseconds <= 0) return;
  const timespec timeout{milliseconds / 1000, (milliseconds % 1000) * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, &timeout, nullptr, 0);
}

inline void SetAndWake(std::atomic<uint32_t>& word) noexcept {
  word.store(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Waits until `word` is set; false after `milliseconds`. Counts pieces of waiting instead of asking a clock;
// a piece that a signal cuts short counts in full.
inline bool WaitForSet(std::atomic<uint32_t>& word, int64_t milliseconds) noexcept {
  for (int64_t waited = 0; word.load(std::memory_order_acquire) == 0; ++waited) {
    if (waited >= milliseconds) return false;
    FutexWait(word, 0, 1);
  }
  return true;
}

}  // namespace gpuprobe::injector
