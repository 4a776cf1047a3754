#include "injector/stream/send_queue.h"

#include <algorithm>

#include "injector/stream/lock.h"

namespace gpuprobe::injector {

bool SendQueue::Init(size_t capacity_bytes) noexcept {
  return memory_.Map((capacity_bytes + 4095) & ~size_t{4095});
}

char* SendQueue::Reserve(size_t bytes) noexcept {
  const Lock lock(mutex_);
  const uint64_t needed = (sizeof(Header) + bytes + 7) & ~uint64_t{7};
  if (frames_ == 0) head_ = tail_ = 0;
  const uint64_t capacity = memory_.size();
  uint64_t place = head_;
  if (frames_ == 0 || head_ > tail_) {
    // Free: from head to the end, and from the start to tail.
    if (head_ + needed > capacity) {
      if (frames_ == 0 || needed >= tail_) return nullptr;
      if (head_ + sizeof(Header) <= capacity) At(head_)->span = 0;
      place = 0;
    }
  } else if (head_ + needed >= tail_) {
    return nullptr;
  }
  reserved_at_ = place;
  reserved_bytes_ = needed;
  return reinterpret_cast<char*>(At(place) + 1);
}

void SendQueue::Commit(size_t offset, size_t size, uint32_t records) noexcept {
  const Lock lock(mutex_);
  if (reserved_bytes_ == 0) return;
  const uint64_t span = (sizeof(Header) + offset + size + 7) & ~uint64_t{7};
  *At(reserved_at_) = {std::min(span, reserved_bytes_), static_cast<uint32_t>(offset), records, size};
  if (frames_ == 0) tail_ = reserved_at_;  // the consumer may have emptied the queue since Reserve
  head_ = reserved_at_ + At(reserved_at_)->span;
  reserved_bytes_ = 0;
  ++frames_;
}

void SendQueue::Cancel() noexcept {
  const Lock lock(mutex_);
  reserved_bytes_ = 0;
}

bool SendQueue::Front(Frame* frame) noexcept {
  const Lock lock(mutex_);
  if (frames_ == 0) return false;
  const Header* header = At(tail_);
  *frame = {reinterpret_cast<const char*>(header + 1) + header->offset, header->size, header->records};
  return true;
}

void SendQueue::Pop() noexcept {
  const Lock lock(mutex_);
  if (frames_ == 0) return;
  tail_ += At(tail_)->span;
  --frames_;
  if (frames_ == 0) return;
  if (tail_ + sizeof(Header) > memory_.size() || At(tail_)->span == 0) tail_ = 0;
}

uint64_t SendQueue::Clear() noexcept {
  uint64_t records = 0;
  Frame frame;
  while (Front(&frame)) {
    records += frame.records;
    Pop();
  }
  return records;
}

size_t SendQueue::frames() const noexcept {
  const Lock lock(mutex_);
  return frames_;
}

}  // namespace gpuprobe::injector
