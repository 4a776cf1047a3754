#include "injector/capture/cupti/buffer_pool.h"

#include <algorithm>
#include <cstring>

namespace gpuprobe::injector {

namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

bool BufferPool::Init(uint32_t buffers, size_t buffer_bytes, size_t most_bytes) noexcept {
  if (buffers == 0 || buffers > kMaxBuffers || buffer_bytes == 0) return false;
  whole_ = buffers - buffers / 2;
  buffer_bytes_ = buffer_bytes;
  aim_bytes_.store(buffer_bytes, std::memory_order_relaxed);
  piece_bytes_ = buffer_bytes < kPieceBytes ? buffer_bytes : kPieceBytes;
  const size_t in_pieces = buffers / 2 * buffer_bytes;
  while (in_pieces / piece_bytes_ > kMaxPieces) piece_bytes_ *= 2;
  count_ = whole_ + in_pieces / piece_bytes_;
  most_aim_bytes_ = most_bytes / 8;
  share_.SetLimit(most_bytes);
  return memory_.Reserve(buffers * buffer_bytes + kDiscardBytes) && share_.Charge(kDiscardBytes);
}

void BufferPool::Aim(size_t bytes) noexcept {
  const size_t most = std::min({bytes, buffer_bytes_, most_aim_bytes_});
  const size_t least = kLeastBytes > buffer_bytes_ ? buffer_bytes_ : kLeastBytes;
  aim_bytes_.store((most < least ? least : most) & ~size_t{7}, std::memory_order_relaxed);
}

size_t BufferPool::Charge(size_t index, size_t bytes) noexcept {
  const size_t before = charged_bytes_[index];
  for (; bytes > before; bytes /= 2) {
    const size_t needed = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
    if (needed > before && share_.Charge(needed - before)) {
      charged_bytes_[index] = static_cast<uint32_t>(needed);
      return bytes & ~size_t{7};
    }
    if (bytes / 2 < kLeastBytes) return before;
  }
  return before == 0 ? 0 : bytes;
}

uint8_t* BufferPool::Take(size_t* bytes) noexcept {
  ever_taken_.store(true, std::memory_order_relaxed);
  auto* base = reinterpret_cast<uint8_t*>(memory_.data());
  for (size_t i = 0; i < count_; ++i) {
    if (taken_[i].load(std::memory_order_relaxed)) continue;
    if (taken_[i].exchange(true, std::memory_order_acquire)) continue;
    *bytes = Charge(i, i < whole_ ? aim_bytes_.load(std::memory_order_relaxed) : piece_bytes_);
    if (*bytes == 0) {
      taken_[i].store(false, std::memory_order_release);
      continue;
    }
    outstanding_.fetch_add(1, std::memory_order_relaxed);
    return base + OffsetOf(i);
  }
  if (may_decline_.load(std::memory_order_relaxed)) {
    *bytes = 0;
    return nullptr;
  }
  *bytes = kDiscardBytes;
  return base + OffsetOf(count_);
}

BufferPool::Owner BufferPool::Classify(const uint8_t* buffer) const noexcept {
  const auto* base = reinterpret_cast<const uint8_t*>(memory_.data());
  if (base == nullptr || buffer < base || buffer >= base + memory_.size()) return Owner::kForeign;
  if (static_cast<size_t>(buffer - base) == OffsetOf(count_)) return Owner::kDiscard;
  const size_t index = IndexOf(buffer);
  return index < count_ && taken_[index].load(std::memory_order_acquire) ? Owner::kPool : Owner::kForeign;
}

size_t BufferPool::IndexOf(const uint8_t* buffer) const noexcept {
  const auto offset = static_cast<size_t>(buffer - reinterpret_cast<const uint8_t*>(memory_.data()));
  const size_t whole_bytes = whole_ * buffer_bytes_;
  const size_t index =
      offset < whole_bytes ? offset / buffer_bytes_ : whole_ + (offset - whole_bytes) / piece_bytes_;
  return index < count_ && OffsetOf(index) == offset ? index : count_;
}

void BufferPool::GiveBack(uint8_t* buffer, size_t used_bytes) noexcept {
  const size_t index = IndexOf(buffer);
  const bool whole_pages =
      reinterpret_cast<uintptr_t>(buffer) % kPageBytes == 0 && BytesOf(index) % kPageBytes == 0;
  if (whole_pages && charged_bytes_[index] > kPieceBytes && HeldMemory() > MemoryLimit() / 4 * 3) {
    madvise(buffer, charged_bytes_[index], MADV_DONTNEED);
    share_.Release(charged_bytes_[index]);
    charged_bytes_[index] = 0;
  } else {
    std::memset(buffer, 0, used_bytes < BytesOf(index) ? used_bytes : BytesOf(index));
  }
  outstanding_.fetch_sub(1, std::memory_order_relaxed);
  taken_[index].store(false, std::memory_order_release);
}

}  // namespace gpuprobe::injector
