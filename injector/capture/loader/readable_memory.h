// Checks whether program memory is readable before we read it, instead of risking a fault.
//
// A loaded object's tables are the program's memory: it may unmap an object's headers to save a page, or take
// away the right to read its tables, at any moment. Asking the kernel costs half a microsecond, and brings
// the pages in; so it is asked for 64 KiB of a segment at a time, which is what one fault would bring in, and
// the answers are kept while one object is looked at (page_access.h). Memory taken away in the microseconds
// between the answer and the read still faults.
//
// Thread: one at a time, as inside a dl_iterate_phdr callback. Allocation: none. Failure: where the kernel
// answers no such question (some sandboxes), all memory counts as readable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nccl {

class ReadableMemory {
 public:
  // Starts over for another object.
  void Forget() noexcept;
  // The kernel is asked for many pages only inside of these: other memory is not ours to bring in.
  void AddSegment(uintptr_t begin, uintptr_t end) noexcept;

  bool Has(uintptr_t address, size_t bytes) noexcept {
    const uintptr_t last = address + bytes - 1;
    return address != 0 && last >= address && HasByte(address) && HasByte(last);
  }
  // False if [address, address + sizeof(Value)) cannot be read. No value is larger than a page.
  template <typename Value>
  bool Get(uintptr_t address, Value* value) noexcept {
    if (!Has(address, sizeof(Value))) return false;
    __builtin_memcpy(value, reinterpret_cast<const void*>(address), sizeof(Value));  // NOLINT
    return true;
  }
  // The text at `address`, which ends before `end`; null if it cannot be read. Cut at kLongestText: longer
  // names match none of ours.
  const char* Text(uintptr_t address, uintptr_t end) noexcept;

 private:
  static constexpr size_t kLongestText = 512;
  static constexpr unsigned kChunkBits = 16;
  static constexpr unsigned kPageBits = 12;
  static constexpr size_t kChunksKept = 1024;  // 64 MiB, as much as the largest libraries' names
  static constexpr size_t kPagesKept = 64;
  struct Segment {
    uintptr_t begin;
    uintptr_t end;
  };

  // An answer is kept as the number of the chunk or page, and the number of the object.
  uint64_t Mark(uintptr_t number) const noexcept { return number << 16 | object_; }
  bool HasByte(uintptr_t address) noexcept {
    const uintptr_t chunk = address >> kChunkBits;
    if (chunks_[chunk % kChunksKept] == Mark(chunk)) return true;
    const uintptr_t page = address >> kPageBits;
    return pages_[page % kPagesKept] == Mark(page) || Ask(address);
  }
  bool Ask(uintptr_t address) noexcept;

  uint16_t object_ = 1;
  // Chunks all of which can be read, and pages.
  uint64_t chunks_[kChunksKept] = {};
  uint64_t pages_[kPagesKept] = {};
  Segment segments_[8] = {};
  size_t segment_count_ = 0;
};

}  // namespace gpuprobe::injector::nccl
