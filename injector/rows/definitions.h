// What ids mean: names, kernel sites, frames, threads, devices, communicators, as definitions that wait for
// the next batch.
//
// Rows refer to them by id. Thread: one at a time, under the lock of stream.h. Allocation: the tables'
// mappings at Init; none for a definition. Failure: a definition that finds no room has the batch sealed; if
// that does not help, or a table is full, it is lost (LOSS_DEFINITIONS_FULL).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/core/events.h"
#include "injector/rows/definition_history.h"
#include "injector/rows/interner.h"
#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

// 0: not seen.
struct DeviceRow {
  uint32_t ordinal;
  std::string_view name;
  uint8_t uuid[16];
  uint64_t memory_bytes, memory_bandwidth_bytes_per_s;
  uint32_t multiprocessors, compute_major, compute_minor;
};

struct VersionsRow {
  int32_t cuda_driver = 0;
  int32_t cuda_runtime = 0;
  uint32_t cupti = 0;
  int32_t nccl = 0;
  std::string_view cupti_path;
  uint32_t cupti_precautions = 0;  // proto/cupti_versions.h
};

class Definitions {
 public:
  // Ids. A new one is defined in the current batch. 0: none (empty text, or no memory:
  // LOSS_DEFINITIONS_FULL).
  uint32_t String(std::string_view text) noexcept;
  uint32_t KernelName(const char* name, uint32_t epoch) noexcept;
  // Prefetches a name that will be looked up soon.
  void ExpectKernelName(const char* name) const noexcept { strings_.ExpectPointer(name); }
  uint32_t Site(const SiteKey& key) noexcept;
  uint32_t Frame(const FrameKey& key) noexcept;

  // Definitions and conditions.
  void DefineThread(uint32_t id, uint32_t tid, std::string_view name, bool main,
                    std::string_view given_name = {}) noexcept;
  void DefineDevice(const DeviceRow& device) noexcept;
  void DefineVersions(const VersionsRow& versions) noexcept;
  void DefineCommunicator(const CommunicatorEvent& event, uint32_t name, uint32_t made_by) noexcept;
  void DefineNcclIdentity(int32_t rank, int32_t world_size) noexcept;
  // `domain` and `name` are String's answers.
  void DefineCategory(uint32_t domain, uint32_t category, uint32_t name) noexcept;
  // `name` is String's answer.
  void DefineObjectName(const ObjectNameEvent& event, uint32_t name) noexcept;

  static constexpr size_t kMostDefinitionBytes = size_t{2} << 20;

  DefinitionHistory& history() noexcept { return history_; }

 protected:
  // `memory` has `bytes`. `make_room` seals the batch.
  [[nodiscard]] bool Init(char* memory, size_t bytes, void (*make_room)(Definitions* self) noexcept) noexcept;
  // Encoded, as fields of Batch.
  const WireBuffer& pending() const noexcept { return pending_; }
  // The pending definitions are in a batch that will be sent.
  void Sent() noexcept;

 private:
  template <typename Fill>
  void Define(wire::BatchTag kind, size_t bytes, const Fill& fill) noexcept;

  WireBuffer pending_;
  void (*make_room_)(Definitions* self) noexcept = nullptr;
  StringInterner strings_;
  SiteInterner sites_;
  FrameInterner frames_;
  DefinitionHistory history_;
};

}  // namespace gpuprobe::injector
