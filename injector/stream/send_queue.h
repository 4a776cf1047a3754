// The bounded queue of encoded frames between whoever seals a batch and the sender: one ring of bytes.
//
// Separate so that sealing (any thread with the builder's lock) and sending (the probe's thread) share
// nothing else. A frame is contiguous, so that it can be encoded in place and sent in place. Thread: one
// producer and one consumer at a time. Allocation: one mapping at start; while the consumer keeps up the same
// first pages are used again. Failure: Reserve returns null when there is no room; the caller drops and
// counts.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "injector/stream/mapping.h"

namespace gpuprobe::injector {

class SendQueue {
 public:
  [[nodiscard]] bool Init(size_t capacity_bytes) noexcept;

  // Producer: room for a frame of at most `bytes`, until Commit or Cancel. Null when there is none.
  char* Reserve(size_t bytes) noexcept;
  // The frame is the `size` bytes that start `offset` bytes into the reservation. `records` are those that it
  // carries.
  void Commit(size_t offset, size_t size, uint32_t records) noexcept;
  void Cancel() noexcept;

  // Consumer: the oldest frame, if any; it stays valid until Pop.
  struct Frame {
    const char* data = nullptr;
    size_t size = 0;
    uint32_t records = 0;
  };
  bool Front(Frame* frame) noexcept;
  void Pop() noexcept;

  // Drops all frames and says how many records they carried.
  uint64_t Clear() noexcept;

  size_t frames() const noexcept;

 private:
  struct Header {
    uint64_t span;  // to the next header; 0: the rest of the ring is unused
    uint32_t offset;
    uint32_t records;
    uint64_t size;
  };

  Header* At(uint64_t position) const noexcept {
    return reinterpret_cast<Header*>(memory_.data() + position);
  }

  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Mapping memory_;
  uint64_t head_ = 0;  // where the next frame goes; head_ == tail_ and no frames: empty
  uint64_t tail_ = 0;  // the oldest frame
  size_t frames_ = 0;
  uint64_t reserved_at_ = 0;
  uint64_t reserved_bytes_ = 0;  // 0: no reservation
};

}  // namespace gpuprobe::injector
