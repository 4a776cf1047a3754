// Waits for a word of memory to change, with a time limit: between our own threads, and for them at exit.
//
// Thread: any. Allocation: none. Failure: the wait ends early or at its limit; the word says which.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace gpuprobe::injector {

inline int64_t MonotonicMs() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
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

// Waits until `word` is set; false when the time is over.
inline bool WaitForSet(std::atomic<uint32_t>& word, int64_t deadline_ms) noexcept {
  while (word.load(std::memory_order_acquire) == 0) {
    const int64_t left = deadline_ms - MonotonicMs();
    if (left <= 0) return false;
    FutexWait(word, 0, left);
  }
  return true;
}

}  // namespace gpuprobe::injector
