// A hash table from a 64-bit key to a plain struct, open addressing, in its own mapping, doubling when three
// quarters full.
//
// Used for names, sites, open ranges and live allocations, because the standard containers need a run-time
// library and the program's allocator. Thread: one at a time. Allocation: mappings, on growth. Failure:
// Insert returns null when the limit is reached, or the account or the kernel refuses; existing entries stay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

// Spreads the bits of a key (the finaliser of splitmix64).
inline uint64_t MixBits(uint64_t x) noexcept {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <typename Value>
class FlatMap {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  // `limit` entries at most; rounded up to a power of two.
  explicit FlatMap(size_t limit) noexcept : limit_(limit) {}

  size_t size() const noexcept { return size_; }

  Value* Find(uint64_t key) noexcept {
    if (capacity_ == 0) return nullptr;
    Entry& entry = entries()[Locate(key)];
    return entry.used ? &entry.value : nullptr;
  }

  // The entry of `key`, inserted if it is new. The next Insert or Erase invalidates pointers into the table.
  Value* Insert(uint64_t key, const Value& value) noexcept {
    if (size_ >= limit_ && Find(key) == nullptr) return nullptr;
    if ((size_ + 1) * 4 > capacity_ * 3 && !Grow()) return nullptr;
    Entry& entry = entries()[Locate(key)];
    if (!entry.used) {
      entry.used = true;
      entry.key = key;
      ++size_;
    }
    entry.value = value;
    return &entry.value;
  }

  bool Erase(uint64_t key) noexcept {
    if (capacity_ == 0) return false;
    size_t hole = Locate(key);
    Entry* table = entries();
    if (!table[hole].used) return false;
    // Close the gap: move back every following entry that may move.
    size_t next = hole;
    for (;;) {
      next = (next + 1) & (capacity_ - 1);
      if (!table[next].used) break;
      const size_t home = MixBits(table[next].key) & (capacity_ - 1);
      const bool stays = hole <= next ? (hole < home && home <= next) : (hole < home || home <= next);
      if (stays) continue;
      table[hole] = table[next];
      hole = next;
    }
    table[hole].used = false;
    --size_;
    return true;
  }

  void Clear() noexcept {
    memory_.Reset();
    capacity_ = 0;
    size_ = 0;
  }

  template <typename Visitor>
  void ForEach(Visitor&& visitor) noexcept {
    for (size_t i = 0; i < capacity_; ++i) {
      if (entries()[i].used) visitor(entries()[i].key, entries()[i].value);
    }
  }

 private:
  struct Entry {
    uint64_t key;
    Value value;
    bool used;
  };

  Entry* entries() const noexcept { return reinterpret_cast<Entry*>(memory_.data()); }

  // Where `key` is, or the free place where it belongs.
  size_t Locate(uint64_t key) const noexcept {
    size_t i = MixBits(key) & (capacity_ - 1);
    while (entries()[i].used && entries()[i].key != key) i = (i + 1) & (capacity_ - 1);
    return i;
  }

  bool Grow() noexcept {
    const size_t capacity = capacity_ == 0 ? 256 : capacity_ * 2;
    Mapping grown;
    // A small table may take of the reserve, so that buffers and rings cannot starve it.
    constexpr size_t kSmallPart = 64;  // of the limit
    const size_t bytes = capacity * sizeof(Entry);
    const bool small = capacity_ == 0 || bytes <= MemoryLimit() / kSmallPart;
    if (!grown.Map(bytes, small ? MemoryUse::kNeeded : MemoryUse::kOrdinary)) return false;
    auto* table = reinterpret_cast<Entry*>(grown.data());
    for (size_t i = 0; i < capacity_; ++i) {
      const Entry& entry = entries()[i];
      if (!entry.used) continue;
      size_t place = MixBits(entry.key) & (capacity - 1);
      while (table[place].used) place = (place + 1) & (capacity - 1);
      table[place] = entry;
    }
    memory_.Swap(grown);
    capacity_ = capacity;
    return true;
  }

  size_t limit_;
  size_t capacity_ = 0;
  size_t size_ = 0;
  Mapping memory_;
};

}  // namespace gpuprobe::injector
