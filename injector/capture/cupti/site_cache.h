// A cache from the fields of a kernel record to its site: most records hit with one comparison of 54 bytes.
//
// The site interner gives the same answers without it, at three times the cost. Thread: the one that has
// claimed it, no lock needed; claiming never waits. Allocation: one mapping. Failure: without the mapping, or
// while another thread has the claim, there is no cache.
//
// A record's name is a CUPTI pointer that may later point to another text. Within one buffer (an epoch) it is
// stable: a site from another epoch has to be looked up again by its text.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "injector/base/mapping.h"

namespace gpuprobe::injector {

// What a site's records share. One cache line.
struct alignas(64) CachedSite {
  const char* name;
  uint32_t shape[11];  // device, context, stream, grid, block, static and dynamic shared memory
  uint32_t site;       // KernelSite.id
  uint32_t name_id;
  uint16_t epoch;  // of the buffer in which the name's text was last looked at; 0: never
  uint16_t registers_per_thread;
};
static_assert(sizeof(CachedSite) == 64);

class SiteCache {
 public:
  [[nodiscard]] bool Init() noexcept { return memory_.Map(sizeof(Tables)); }

  // False when the cache is missing or claimed. Call Release only after true.
  [[nodiscard]] bool Claim() noexcept {
    return memory_.data() != nullptr && !claimed_.exchange(true, std::memory_order_acquire);
  }
  void Release() noexcept { claimed_.store(false, std::memory_order_release); }

  // Epochs number the buffers. Sixteen bits are kept; 0 means none.
  void StartEpoch(uint32_t epoch) noexcept {
    if (epoch - oldest_epoch_ < 0x8000) return;
    Forget();
    oldest_epoch_ = epoch;
  }

  // The site that the record most likely has.
  const CachedSite& Guess(const CUpti_ActivityKernel4& kernel) const noexcept {
    const Tables& known = *tables();
    return known.sites[known.numbers[HashOf(kernel)]];
  }
  static bool Matches(const CachedSite& cached, const CUpti_ActivityKernel4& kernel) noexcept;

  // The record's site; one that was not known has epoch 0.
  CachedSite& FindOrAdd(const CUpti_ActivityKernel4& kernel) noexcept;

 private:
  // Sites are stored in order of arrival; a hash table of their numbers finds them. When the store is full,
  // all are forgotten. Number 0 is none.
  static constexpr int kHashBits = 14;
  static constexpr uint32_t kPlaces = 1u << kHashBits;
  static constexpr uint32_t kSites = 8192;
  struct Tables {
    CachedSite sites[kSites];
    uint16_t numbers[kPlaces];
  };

  // Where the shape lies in a record. The word behind it, which fills the third vector, is something else.
  static constexpr size_t kShapeAt = offsetof(CUpti_ActivityKernel4, deviceId);
  static_assert(offsetof(CUpti_ActivityKernel4, dynamicSharedMemory) - kShapeAt == 10 * sizeof(uint32_t));

  template <typename Word>
  static Word Load(const void* at) noexcept {
    Word word;
    std::memcpy(&word, at, sizeof(word));
    return word;
  }
  static const char* ShapeOf(const CUpti_ActivityKernel4& kernel) noexcept {
    return reinterpret_cast<const char*>(&kernel) + kShapeAt;
  }
  static uint32_t HashOf(const CUpti_ActivityKernel4& kernel) noexcept;
  Tables* tables() const noexcept { return reinterpret_cast<Tables*>(memory_.data()); }
  void Forget() noexcept;

  Mapping memory_;
  std::atomic<bool> claimed_{false};
  uint32_t oldest_epoch_ = 0;
  uint32_t count_ = 1;
};

// Leaves out fields that are seldom the only difference.
inline uint32_t SiteCache::HashOf(const CUpti_ActivityKernel4& kernel) noexcept {
  const char* shape = ShapeOf(kernel);
  const auto device_context = Load<uint64_t>(shape);
  const auto stream_grid_x = Load<uint64_t>(shape + 8);
  const auto grid_yz = Load<uint64_t>(shape + 16);
  const auto block_xy = Load<uint64_t>(shape + 24);
  const uint64_t a = (reinterpret_cast<uintptr_t>(kernel.name) ^ stream_grid_x) * 0x9fb21c651e98df25u;
  const uint64_t b = (device_context + grid_yz + block_xy) * 0xa0761d6478bd642fu;
  return static_cast<uint32_t>((a ^ b) >> (64 - kHashBits));
}

// Without a branch, sixteen bytes at a time.
inline bool SiteCache::Matches(const CachedSite& cached, const CUpti_ActivityKernel4& kernel) noexcept {
  typedef uint32_t Lanes __attribute__((vector_size(16)));
  typedef uint64_t Halves __attribute__((vector_size(16)));
  static_assert(sizeof(CUpti_ActivityKernel4) - kShapeAt >= 3 * sizeof(Lanes));
  static_assert(offsetof(CachedSite, shape) + 3 * sizeof(Lanes) <= sizeof(CachedSite));
  const char* shape = ShapeOf(kernel);
  const auto* known = reinterpret_cast<const char*>(cached.shape);
  const Lanes first = Load<Lanes>(shape) ^ Load<Lanes>(known);
  const Lanes second = Load<Lanes>(shape + 16) ^ Load<Lanes>(known + 16);
  const Lanes third = (Load<Lanes>(shape + 32) ^ Load<Lanes>(known + 32)) & Lanes{~0u, ~0u, ~0u, 0};
  const auto different = reinterpret_cast<Halves>(first | second | third);
  return ((different[0] | different[1]) |
          (reinterpret_cast<uintptr_t>(cached.name) ^ reinterpret_cast<uintptr_t>(kernel.name)) |
          static_cast<uint64_t>(cached.registers_per_thread ^ kernel.registersPerThread)) == 0;
}

}  // namespace gpuprobe::injector
