// CUPTI's activity records to rows of the batch builder.
//
// Separate from the session so that it can be fed buffers by a test or a benchmark. Thread: the one on which
// CUPTI completes a buffer, and inside that callback, because the names in the records belong to CUPTI.
// Allocation: none for a record. Locking: records are gathered first, with no lock held
// (cuptiActivityGetNextRecord is a CUPTI call), then decoded under the stream's lock. Failure: a record that
// cannot be used is counted.
//
// Layouts: every newer record begins with the older one. We read each field through the oldest struct that
// has it and gate later fields on CUPTI's version; the stride is CUPTI's business alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/cupti/function_table.h"
#include "injector/stream/stream.h"

namespace gpuprobe::injector {

class Decoder {
 public:
  Decoder(const CuptiApi* api, Stream* stream) noexcept : api_(api), stream_(stream) {}

  // Maps the site cache. Without it decoding works, at three times the cost.
  void Init() noexcept;

  void DecodeBuffer(uint8_t* buffer, size_t valid_bytes) noexcept;

  // True once a device record was seen, so that nobody needs to ask again.
  bool devices_seen() const noexcept { return devices_seen_; }

 private:
  // What a site's records share, as it lies in them: name, device, context, stream, grid, block, shared
  // memory. One cache line. Never used: epoch 0.
  struct alignas(64) CachedSite {
    const char* name;
    uint64_t words[5];
    uint32_t last;
    uint32_t site;
    uint32_t name_id;
    uint16_t epoch;
    uint16_t registers_per_thread;
  };
  static_assert(sizeof(CachedSite) == 64);
  static constexpr int kSitePairBits = 13;
  static constexpr size_t kCachedSites = size_t{2} << kSitePairBits;

  uint32_t NextEpoch() noexcept;
  void Decode(const CUpti_Activity* const* records, uint32_t count, uint32_t epoch) noexcept;
  void CountUnknown(uint32_t kind) noexcept;
  void DecodeOther(const CUpti_Activity* record) noexcept;
  CachedSite* cached_sites() const noexcept { return reinterpret_cast<CachedSite*>(site_cache_.data()); }
  static uint32_t PairOf(const CUpti_ActivityKernel4& kernel) noexcept;
  static bool Matches(const CachedSite& cached, const CUpti_ActivityKernel4& kernel) noexcept;
  uint32_t LookUpSite(const CUpti_ActivityKernel4& kernel, uint32_t epoch) noexcept;
  uint32_t InternSite(const CUpti_ActivityKernel4& kernel, uint32_t name_id) noexcept;
  void DecodeCopy(const CUpti_Activity* record) noexcept;
  void DecodePeerCopy(const CUpti_Activity* record) noexcept;
  void DecodeMemset(const CUpti_Activity* record) noexcept;
  void DecodeSync(const CUpti_Activity* record) noexcept;
  void DecodeDevice(const CUpti_Activity* record) noexcept;
  bool HasGraphNodes() const noexcept;

  const CuptiApi* api_;
  Stream* stream_;
  uint32_t epoch_ = 0;  // one for each buffer: a name's pointer means one text within it; under the lock
  Mapping site_cache_;
  bool devices_seen_ = false;
};

}  // namespace gpuprobe::injector
