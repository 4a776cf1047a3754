// The account of all memory that the probe holds in the program's process, and its limit
// (GPUPROBE_MEMORY_MIB).
//
// Whoever takes memory from the kernel charges it here first, and releases it when the pages are the kernel's
// again. What is only address space is not charged: an event ring counts once a thread has claimed it, the
// queue as far as frames were written. Who is refused does what it does when the kernel refuses: it counts a
// loss, starts again with an empty table, or makes do with less.
//
// Example: a limit of 64 MiB, of which 62 MiB are held. An allocation table that wants 4 MiB to grow is
// refused, and further allocations are counted as lost. A ring for a new thread is refused as well, because
// the last eighth is a reserve. The rings that all threads share may still take of it.
//
// Thread: any. Allocation: none. Failure: false, and nothing is charged.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector {

enum class MemoryUse {
  kOrdinary,  // leaves the reserve alone, an eighth of the limit
  kNeeded,    // without it a thread, or the probe itself, would record nothing
};

// Bytes; no limit before the first call. What is held already stays, although it may be more.
void SetMemoryLimit(size_t bytes) noexcept;
size_t MemoryLimit() noexcept;

[[nodiscard]] bool ChargeMemory(size_t bytes, MemoryUse use) noexcept;
void ReleaseMemory(size_t bytes) noexcept;

size_t HeldMemory() noexcept;
size_t PeakMemory() noexcept;  // the most that was ever held

// What the loader has mapped of this library: code, data and zeroed memory.
size_t OwnImageBytes() noexcept;

// A part of the account with a bound of its own, so that one use cannot starve the others.
class MemoryShare {
 public:
  void SetLimit(size_t bytes) noexcept { limit_ = bytes; }
  [[nodiscard]] bool Charge(size_t bytes, MemoryUse use = MemoryUse::kOrdinary) noexcept;
  void Release(size_t bytes) noexcept;
  size_t held() const noexcept { return held_.load(std::memory_order_relaxed); }

 private:
  size_t limit_ = SIZE_MAX;  // set before other threads come
  std::atomic<size_t> held_{0};
};

}  // namespace gpuprobe::injector
