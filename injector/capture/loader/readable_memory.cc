#include "injector/capture/loader/readable_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "injector/capture/loader/page_access.h"

namespace gpuprobe::injector::nccl {

void ReadableMemory::Forget() noexcept {
  if (++object_ == 0) {
    std::fill(std::begin(chunks_), std::end(chunks_), 0);
    std::fill(std::begin(pages_), std::end(pages_), 0);
    object_ = 1;
  }
  segment_count_ = 0;
}

void ReadableMemory::AddSegment(uintptr_t begin, uintptr_t end) noexcept {
  if (segment_count_ == std::size(segments_)) return;
  segments_[segment_count_++] = {begin & ~(kPageBytes - 1), (end + kPageBytes - 1) & ~(kPageBytes - 1)};
}

bool ReadableMemory::Ask(uintptr_t address) noexcept {
  const uintptr_t page = address >> kPageBits;
  bool can = false;
  for (size_t i = 0; i < segment_count_ && !can; ++i) {
    const Segment& segment = segments_[i];
    if (address < segment.begin || address >= segment.end) continue;
    const uintptr_t chunk = address >> kChunkBits;
    const uintptr_t begin = std::max(chunk << kChunkBits, segment.begin);
    const uintptr_t end = std::min((chunk + 1) << kChunkBits, segment.end);
    can = CanRead(begin, end);
    // A chunk that other segments share is known page by page.
    if (!can) continue;
    if (end - begin == uintptr_t{1} << kChunkBits) chunks_[chunk % kChunksKept] = Mark(chunk);
    for (uintptr_t part = begin >> kPageBits; part < end >> kPageBits; ++part)
      pages_[part % kPagesKept] = Mark(part);
  }
  if (!can) {
    can = CanRead(page << kPageBits, (page + 1) << kPageBits);
    if (can) pages_[page % kPagesKept] = Mark(page);
  }
  return can;
}

const char* ReadableMemory::Text(uintptr_t address, uintptr_t end) noexcept {
  const auto* text = reinterpret_cast<const char*>(address);  // NOLINT(performance-no-int-to-ptr)
  if (address < end && Has(address, std::min(kLongestText, end - address))) return text;
  while (address < end && HasByte(address)) {
    const uintptr_t next = std::min(((address >> kPageBits) + 1) << kPageBits, end);
    const auto* piece = reinterpret_cast<const char*>(address);  // NOLINT(performance-no-int-to-ptr)
    if (std::memchr(piece, '\0', next - address) != nullptr) return text;
    address = next;
  }
  return nullptr;
}

}  // namespace gpuprobe::injector::nccl
