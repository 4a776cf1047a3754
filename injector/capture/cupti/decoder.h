// Decodes CUPTI's activity records into rows of the batch builder.
//
// Tests and benchmarks can feed it buffers without a session. Thread: the one on which CUPTI completes a
// buffer, inside that callback, because the names in the records belong to CUPTI.
// Allocation: none for a record. Locking: records are gathered first, with no lock held
// (cuptiActivityGetNextRecord is a CUPTI call), then decoded under the stream's lock. Failure: a record that
// cannot be used is counted.
//
// Layouts: every newer record begins with the older one. We read each field through the oldest struct that
// has it and gate later fields on CUPTI's version; only CUPTI knows the stride.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "injector/capture/cupti/function_table.h"
#include "injector/capture/cupti/node_sources.h"
#include "injector/capture/cupti/site_cache.h"
#include "injector/ledgers/stream.h"

namespace gpuprobe::injector {

// True while unfinished records are requested (CuptiSession::FlushUnfinished): a record without an end is
// then of work that still runs.
extern std::atomic<bool> expect_unfinished;

class Decoder {
 public:
  Decoder(const CuptiApi* api, Stream* stream) noexcept : api_(api), stream_(stream) {}

  // Maps the site cache. Without it decoding works, at three times the cost.
  void Init() noexcept;

  void DecodeBuffer(uint8_t* buffer, size_t valid_bytes) noexcept;

  // From now on the correlation ids of work in CUDA graphs are wrong; such work is recorded without one.
  void DistrustGraphs() noexcept { trusts_graphs_.store(false, std::memory_order_relaxed); }

  // True once a device record was seen and need not be asked for again.
  bool devices_seen() const noexcept { return devices_seen_; }

 private:
  // Records that were gathered and not yet decoded.
  struct Chunk;

  uint32_t NextEpoch() noexcept;
  // Gathers up to a chunk of the records after `*record`. False at the end of the buffer.
  bool Gather(uint8_t* buffer, size_t valid_bytes, const SiteCache* sites, uint16_t epoch,
              CUpti_Activity** record, Chunk* chunk) noexcept;
  void Decode(Chunk* chunk, SiteCache* sites, uint32_t epoch) noexcept;
  bool Put(Chunk* chunk, SiteCache* sites, uint32_t epoch) noexcept;
  void CountDamaged(uint8_t* buffer, size_t valid_bytes, const CUpti_Activity* last) noexcept;
  void DecodeOther(const CUpti_Activity* record) noexcept;
  uint32_t LookUpSite(const CUpti_ActivityKernel4& kernel, SiteCache* sites, uint32_t epoch) noexcept;
  uint32_t InternSite(const CUpti_ActivityKernel4& kernel, uint32_t name_id) noexcept;
  void DecodeCopy(const CUpti_Activity* record) noexcept;
  void DecodePeerCopy(const CUpti_Activity* record) noexcept;
  void DecodeMemset(const CUpti_Activity* record) noexcept;
  void DecodeSync(const CUpti_Activity* record) noexcept;
  void DecodeDevice(const CUpti_Activity* record) noexcept;
  void DecodeGraphRun(const CUpti_Activity* record) noexcept;
  void DecodeMemory(const CUpti_Activity* record) noexcept;
  void DecodePool(const CUpti_Activity* record) noexcept;
  void DecodeOverhead(const CUpti_Activity* record) noexcept;
  bool HasGraphNodes() const noexcept;
  bool HasNodeSources() const noexcept { return api_->version >= NodeSources::kSinceVersion; }
  uint32_t CorrelationOf(uint32_t correlation, uint64_t graph_node) const noexcept {
    return graph_node == 0 || trusts_graphs_.load(std::memory_order_relaxed) ? correlation : 0;
  }

  const CuptiApi* api_;
  Stream* stream_;
  uint32_t epoch_ = 0;  // one for each buffer: a name's pointer means one text within it; under the lock
  SiteCache sites_;
  NodeSources sources_;
  bool devices_seen_ = false;
  std::atomic<bool> trusts_graphs_{true};
};

}  // namespace gpuprobe::injector
