// Interns texts and kernel sites as small numbers: an id is assigned once and keeps its meaning for the life
// of the process.
//
// The batch builder asks it for ids and sends new ones. A full table is cleared and starts again with new
// ids, so that memory stays bounded and nothing is lost; the collector then sees a second id with the same
// meaning. So does one that may not grow. Thread: the one that holds the builder's lock. Allocation:
// mappings, on growth. Failure: id 0 ("none") when there is no memory for the smallest table.
#pragma once

#include <cstdint>
#include <string_view>

#include "injector/base/flat_map.h"

namespace gpuprobe::injector {

struct Interned {
  uint32_t id = 0;
  bool is_new = false;  // to be defined on the wire
};

class StringInterner {
 public:
  [[nodiscard]] bool Init() noexcept;

  Interned Intern(std::string_view text) noexcept;

  // The same for a text that will be asked for again under the same pointer (kernel names). `epoch` is a
  // number that changes whenever the pointer may have come to mean another text; within one epoch the text is
  // compared once.
  Interned InternPointer(const char* text, uint32_t epoch) noexcept;
  // Prefetches the cache entry that InternPointer will read.
  void ExpectPointer(const char* text) const noexcept { __builtin_prefetch(cache_ + PlaceOf(text)); }

 private:
  struct Entry {
    uint32_t offset;
    uint32_t length;
    uint32_t id;
  };
  struct CachedPointer {
    const char* pointer;
    uint32_t epoch;
    uint32_t id;
    uint32_t offset;
  };
  static constexpr size_t kCacheEntries = 16384;
  static constexpr size_t kCacheBytes = kCacheEntries * sizeof(CachedPointer);
  static constexpr size_t kTextBytes = size_t{16} << 20;
  static constexpr size_t kLeastTextBytes = size_t{64} << 10;  // charged in any case
  static constexpr size_t kMaxTexts = 65536;

  // The first of a pair of places.
  static size_t PlaceOf(const char* text) noexcept {
    return MixBits(reinterpret_cast<uintptr_t>(text)) & (kCacheEntries - 2);
  }
  const Entry* Lookup(std::string_view text, bool* is_new) noexcept;
  const Entry* Add(std::string_view text) noexcept;
  char* TextAt(size_t offset) const noexcept { return text_.data() + kCacheBytes + offset; }
  void Forget() noexcept;

  FlatMap<Entry> entries_{kMaxTexts};
  Mapping text_;  // the pointer cache, then zero-terminated texts
  size_t text_used_ = 0;
  CachedPointer* cache_ = nullptr;
  uint32_t next_id_ = 1;
};

// What wire.proto's KernelSite holds, without its id.
struct SiteKey {
  uint32_t name;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t static_shared_bytes;
  uint32_t dynamic_shared_bytes;
  uint32_t registers_per_thread;

  bool operator==(const SiteKey&) const = default;
};

class SiteInterner {
 public:
  Interned Intern(const SiteKey& key) noexcept;

 private:
  struct Entry {
    SiteKey key;
    uint32_t id;
  };
  static constexpr size_t kMaxSites = 65536;

  FlatMap<Entry> entries_{kMaxSites};
  uint32_t next_id_ = 1;
};

// What wire.proto's HostFrame holds, without its id.
struct FrameKey {
  uint32_t caller;  // id
  uint32_t function;
  uint32_t file;
  uint32_t line;

  bool operator==(const FrameKey&) const = default;
};

// Stacks as a tree: frames with the same callers share them. Ids refer to each other, so a full table is not
// cleared: what is new is refused from then on.
class FrameInterner {
 public:
  static constexpr size_t kMaxFrames = 32768;

  Interned Intern(const FrameKey& key) noexcept;

 private:
  struct Entry {
    FrameKey key;
    uint32_t id;
  };

  FlatMap<Entry> entries_{kMaxFrames};
  uint32_t next_id_ = 1;
};

}  // namespace gpuprobe::injector
