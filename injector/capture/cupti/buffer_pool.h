// The activity buffers that CUPTI fills: a bounded set, always zeroed when handed out.
//
// CUPTI keeps a buffer until it is full and everything in it has finished, on a busy device for as long as it
// takes to fill. So buffers are no larger than what arrives in half a second (Aim). Since CUDA 13.0 it also
// keeps one for each thread of the program, however little that thread launches. So half of the memory is cut
// into pieces, which are handed out once all whole buffers are out.
//
// Thread: Take on the application's thread (CUPTI asks there), Classify and GiveBack on the thread that
// completes. Allocation: one range of addresses at Init; a buffer is charged to the account when it is handed
// out for the first time, or larger than before. Failure: when no buffer is free or may be had, the request
// is declined, and CUPTI counts what it drops. Before 12.9 that is said to crash CUPTI, so the discard buffer
// is handed out instead, perhaps several times at once; what is written there is lost and counted when it
// completes. It knows nothing of CUPTI, so that exhaustion and foreign buffers can be tested without it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

class BufferPool {
 public:
  static constexpr uint32_t kMaxBuffers = 256;
  static constexpr size_t kDiscardBytes = size_t{64} << 10;
  static constexpr size_t kLeastBytes = size_t{16} << 10;  // 75 kernels
  static constexpr size_t kPieceBytes = size_t{64} << 10;  // 300 kernel records; larger where there would be
  static constexpr size_t kMaxPieces = 1024;               // more than this

  enum class Owner { kPool, kDiscard, kForeign };

  // `most_bytes`: what all buffers may be charged.
  [[nodiscard]] bool Init(uint32_t buffers, size_t buffer_bytes, size_t most_bytes = SIZE_MAX) noexcept;

  // Sets how large whole buffers are from now on: the nearest size between kLeastBytes and the one given to
  // Init.
  void Aim(size_t bytes) noexcept;

  // From now on Take returns null instead of the discard buffer.
  void MayDecline() noexcept { may_decline_.store(true, std::memory_order_relaxed); }

  // A zeroed buffer and its size, whole as long as there is one.
  uint8_t* Take(size_t* bytes) noexcept;

  // Whose buffer this is. Only a pool buffer may be parsed and given back.
  Owner Classify(const uint8_t* buffer) const noexcept;

  // Zeroes the first `used_bytes` and makes the buffer free again. Where memory is short, its pages go back
  // to the kernel.
  void GiveBack(uint8_t* buffer, size_t used_bytes) noexcept;

  uint32_t outstanding() const noexcept { return outstanding_.load(std::memory_order_relaxed); }
  // More than half are out: what they hold should be collected.
  bool runs_short() const noexcept { return size_t{2} * outstanding() > count_; }
  bool ever_taken() const noexcept { return ever_taken_.load(std::memory_order_relaxed); }

 private:
  size_t OffsetOf(size_t index) const noexcept {
    return index < whole_ ? index * buffer_bytes_ : whole_ * buffer_bytes_ + (index - whole_) * piece_bytes_;
  }
  size_t BytesOf(size_t index) const noexcept { return index < whole_ ? buffer_bytes_ : piece_bytes_; }
  // How much of a buffer that the caller has taken may be handed out, `bytes` or less; 0: nothing.
  size_t Charge(size_t index, size_t bytes) noexcept;
  // Index of the buffer that starts there; count_ when none does.
  size_t IndexOf(const uint8_t* buffer) const noexcept;

  Mapping memory_;  // the whole buffers, the pieces, then the discard buffer
  size_t count_ = 0;
  size_t whole_ = 0;
  size_t buffer_bytes_ = 0;
  std::atomic<size_t> aim_bytes_{0};
  size_t most_aim_bytes_ = 0;
  size_t piece_bytes_ = 0;
  std::atomic<uint32_t> outstanding_{0};
  std::atomic<bool> ever_taken_{false};
  std::atomic<bool> may_decline_{false};
  MemoryShare share_;
  std::atomic<bool> taken_[kMaxBuffers + kMaxPieces] = {};
  uint32_t charged_bytes_[kMaxBuffers + kMaxPieces] = {};  // of whoever has taken it
};

}  // namespace gpuprobe::injector
