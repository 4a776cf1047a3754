// A bounded queue of encoded frames, from the thread that seals a batch to the sender: one ring of bytes.
//
// A sent frame stays until the collector has it on record, so that it can be sent again to the successor of a
// collector that died:
//
//   released | sent, not acknowledged | to be sent | free
//            ^ tail                   ^ next       ^ head
//
// A frame is contiguous, so that it can be encoded in place and sent in place. Thread: one producer and one
// consumer at a time. Allocation: one range of addresses at start; chunks are charged to the account as
// frames reach them, and go back to the kernel behind the tail. Failure: Reserve returns null when there is
// no room, or the account refuses; the caller drops and counts.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

class SendQueue {
 public:
  [[nodiscard]] bool Init(size_t capacity_bytes) noexcept;
  // Chunks take at most `bytes` of memory. Called once, before the first frame.
  void LimitMemory(size_t bytes) noexcept { share_.SetLimit(bytes); }

  // Producer: room for a frame of at most `bytes`, until Commit or Cancel. Null when there is none.
  char* Reserve(size_t bytes) noexcept;
  // The frame is the `size` bytes that start `offset` bytes into the reservation. `records` are those that it
  // carries, `sequence` is its number, which ascends.
  void Commit(size_t offset, size_t size, uint32_t records, uint64_t sequence) noexcept;
  void Cancel() noexcept;

  // Consumer: the oldest frame that was not sent, if any; it stays valid until it is released.
  struct Frame {
    const char* data = nullptr;
    size_t size = 0;
    uint32_t records = 0;
    uint64_t sequence = 0;
  };
  bool Front(Frame* frame) noexcept;
  // The front was sent and is kept.
  void Advance() noexcept;
  // The front was sent, and sent frames are not kept.
  void Pop() noexcept;
  // Frames up to this sequence are on record. Releases only those that were sent, unless `unsent_too`.
  void Release(uint64_t sequence, bool unsent_too = false) noexcept;
  // What was sent must be sent again.
  void Rewind() noexcept;

  // Drops all frames and returns how many records they carried.
  uint64_t Clear() noexcept;

  // The latest number, and all records, of the frames that were released as on record.
  // Without the lock: Hello is made on a thread that the application waits on.
  uint64_t released_sequence() const noexcept { return released_sequence_.load(std::memory_order_relaxed); }
  uint64_t released_records() const noexcept { return released_records_.load(std::memory_order_relaxed); }

  // Whether there is a collector: it decides the loss reason for records that a full queue drops. Any thread.
  void SetConnected(bool connected) noexcept { connected_.store(connected, std::memory_order_relaxed); }
  bool connected() const noexcept { return connected_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kMostChunks = 4096;
  friend struct SendQueueCounts;  // tests' model of it
  struct Header {
    uint64_t span;  // to the next header; 0: the rest of the ring is unused
    uint32_t offset;
    uint32_t records;
    uint64_t size;
    uint64_t sequence;
  };

  Header* At(uint64_t position) const noexcept {
    return reinterpret_cast<Header*>(memory_.data() + position);
  }
  // Where the frame after the one at `position` is; there is one.
  uint64_t After(uint64_t position) const noexcept;
  void DropTail() noexcept;
  uint64_t FrontEnd() const noexcept;
  // Frames of at least `floor` stay: a chunk is the kernel's again when all of it lies between floor and
  // `to`.
  void GiveBack(uint64_t floor, uint64_t to) noexcept;
  bool ChargeChunks(uint64_t from, uint64_t to) noexcept;
  void ReturnPages() noexcept;

  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Mapping memory_;
  MemoryShare share_;
  uint64_t chunk_bytes_ = 0;  // a multiple of pages
  uint64_t head_ = 0;         // where the next frame goes
  uint64_t tail_ = 0;         // the oldest frame, if there is one
  uint64_t next_ = 0;         // the oldest frame that was not sent, if there is one
  size_t frames_ = 0;
  size_t unsent_ = 0;
  uint64_t reserved_at_ = 0;
  uint64_t reserved_bytes_ = 0;  // 0: no reservation
  uint64_t returned_ = 0;        // pages before it, back to the start, are the kernel's again
  bool charged_[kMostChunks] = {};
  std::atomic<uint64_t> released_sequence_{0};
  std::atomic<uint64_t> released_records_{0};
  std::atomic<bool> connected_{true};
};

}  // namespace gpuprobe::injector
