#include "injector/send/send_queue.h"

#include <algorithm>

#include "injector/base/lock.h"

namespace gpuprobe::injector {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLeastChunkBytes = uint64_t{256} << 10;
constexpr uint64_t kReturnBytes = uint64_t{1} << 20;  // pages go back to the kernel in pieces of this size

}  // namespace

bool SendQueue::Init(size_t capacity_bytes) noexcept {
  InheritPriority(mutex_);
  chunk_bytes_ = std::max<uint64_t>(kLeastChunkBytes, capacity_bytes / kMostChunks);
  chunk_bytes_ = (chunk_bytes_ + kPageBytes - 1) & ~(kPageBytes - 1);
  const size_t capacity = (capacity_bytes + kPageBytes - 1) & ~size_t{kPageBytes - 1};
  // The first chunks are never given back, so that records flow however much others take.
  return memory_.Reserve(capacity) && ChargeChunks(0, std::min<uint64_t>(capacity, kReturnBytes));
}

bool SendQueue::ChargeChunks(uint64_t from, uint64_t to) noexcept {
  for (uint64_t chunk = from / chunk_bytes_; chunk * chunk_bytes_ < to; ++chunk) {
    if (charged_[chunk]) continue;
    if (!share_.Charge(chunk_bytes_)) return false;
    charged_[chunk] = true;
  }
  return true;
}

char* SendQueue::Reserve(size_t bytes) noexcept {
  const Lock lock(mutex_);
  const uint64_t needed = (sizeof(Header) + bytes + 7) & ~uint64_t{7};
  if (frames_ == 0) {
    if (head_ > kReturnBytes) GiveBack(kReturnBytes, head_);
    head_ = tail_ = next_ = returned_ = 0;
  }
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
  if (!ChargeChunks(place, place + needed)) return nullptr;
  reserved_at_ = place;
  reserved_bytes_ = needed;
  return reinterpret_cast<char*>(At(place) + 1);
}

void SendQueue::Commit(size_t offset, size_t size, uint32_t records, uint64_t sequence) noexcept {
  const Lock lock(mutex_);
  if (reserved_bytes_ == 0) return;
  const uint64_t span = (sizeof(Header) + offset + size + 7) & ~uint64_t{7};
  *At(reserved_at_) = {std::min(span, reserved_bytes_), static_cast<uint32_t>(offset), records, size,
                       sequence};
  // The consumer may have emptied the queue since Reserve.
  if (frames_ == 0) tail_ = reserved_at_;
  if (unsent_ == 0) next_ = reserved_at_;
  head_ = reserved_at_ + At(reserved_at_)->span;
  reserved_bytes_ = 0;
  ++frames_;
  ++unsent_;
}

void SendQueue::Cancel() noexcept {
  const Lock lock(mutex_);
  reserved_bytes_ = 0;
}

uint64_t SendQueue::After(uint64_t position) const noexcept {
  const uint64_t next = position + At(position)->span;
  return next + sizeof(Header) > memory_.size() || At(next)->span == 0 ? 0 : next;
}

bool SendQueue::Front(Frame* frame) noexcept {
  const Lock lock(mutex_);
  if (unsent_ == 0) return false;
  const Header* header = At(next_);
  *frame = {reinterpret_cast<const char*>(header + 1) + header->offset, header->size, header->records,
            header->sequence};
  return true;
}

void SendQueue::Advance() noexcept {
  const Lock lock(mutex_);
  if (unsent_ == 0) return;
  if (--unsent_ > 0) next_ = After(next_);
}

void SendQueue::DropTail() noexcept {
  const uint64_t span = At(tail_)->span;
  if (unsent_ == frames_ && --unsent_ > 0) next_ = After(next_);
  if (--frames_ == 0) {
    tail_ += span;
    return;
  }
  const uint64_t next = After(tail_);
  if (next < tail_) {  // around the end, behind which lies what the producer has written since
    GiveBack(FrontEnd(), memory_.size());
    returned_ = 0;
  }
  tail_ = next;
}

// End of what was written since the ring wrapped around, below the tail.
uint64_t SendQueue::FrontEnd() const noexcept {
  const uint64_t reserved = reserved_bytes_ != 0 && reserved_at_ < tail_ ? reserved_at_ + reserved_bytes_ : 0;
  return std::max(reserved, head_ < tail_ ? head_ : 0);
}

void SendQueue::GiveBack(uint64_t floor, uint64_t to) noexcept {
  const uint64_t from = (std::max(returned_ & ~(kPageBytes - 1), floor) + kPageBytes - 1) & ~(kPageBytes - 1);
  to &= ~(kPageBytes - 1);
  if (from >= to) return;
  madvise(memory_.data() + from, to - from, MADV_DONTNEED);
  floor = std::max(floor, kReturnBytes);
  for (uint64_t chunk = from / chunk_bytes_; (chunk + 1) * chunk_bytes_ <= to; ++chunk) {
    if (chunk * chunk_bytes_ < floor || !charged_[chunk]) continue;
    share_.Release(chunk_bytes_);
    charged_[chunk] = false;
  }
}

// Returns pages to the kernel: a queue that is never quite empty would otherwise touch all of them in turn.
void SendQueue::ReturnPages() noexcept {
  if (tail_ < returned_ + kReturnBytes) return;
  GiveBack(FrontEnd(), tail_);
  returned_ = tail_;
}

void SendQueue::Pop() noexcept {
  Advance();
  Release(UINT64_MAX);
}

void SendQueue::Release(uint64_t sequence, bool unsent_too) noexcept {
  const Lock lock(mutex_);
  while (frames_ > 0 && (unsent_too || frames_ > unsent_) && At(tail_)->sequence <= sequence) {
    released_sequence_.store(std::max(released_sequence(), At(tail_)->sequence), std::memory_order_relaxed);
    released_records_.store(released_records() + At(tail_)->records, std::memory_order_relaxed);
    DropTail();
  }
  ReturnPages();
}

void SendQueue::Rewind() noexcept {
  const Lock lock(mutex_);
  next_ = tail_;
  unsent_ = frames_;
}

uint64_t SendQueue::Clear() noexcept {
  const Lock lock(mutex_);
  uint64_t records = 0;
  while (frames_ > 0) {
    records += At(tail_)->records;
    DropTail();
  }
  ReturnPages();
  return records;
}

}  // namespace gpuprobe::injector
