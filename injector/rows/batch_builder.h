// Encodes records into columnar Batch frames (wire.proto's Batch).
//
// Records come from capture/cupti/decoder and ledgers/event_drain, frames go to send_queue. Thread: one at a
// time, under the lock of stream.h. Allocation: one mapping at Init; none for a record. Failure: when the
// queue has no room, the records of the batch are dropped and counted (LOSS_SEND_QUEUE_FULL), but its
// definitions stay and go with a later batch, because ids keep their meaning.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/core/events.h"
#include "injector/core/small_run.h"
#include "injector/core/step_gate.h"
#include "injector/rows/columns.h"
#include "injector/rows/definition_history.h"
#include "injector/rows/interner.h"
#include "injector/rows/kernel_columns.h"
#include "injector/rows/pool_levels.h"
#include "injector/send/send_queue.h"

namespace gpuprobe::injector {

struct CopyRow {
  uint64_t start_ns, end_ns, bytes, graph_node;
  wire::CopyDirection direction;
  wire::MemoryKind src_memory, dst_memory;
  uint32_t device, context, stream, correlation;
  bool asynchronous;
  uint32_t peer_device_plus_one;
};

struct MemsetRow {
  uint64_t start_ns, end_ns, bytes, graph_node;
  uint32_t value;
  wire::MemoryKind memory;
  uint32_t device, context, stream, correlation;
};

struct SyncRow {
  uint64_t start_ns, end_ns;
  wire::SyncKind what;
  uint32_t context, stream, event, correlation;
};

struct GraphRunRow {
  uint64_t start_ns, end_ns;
  uint32_t graph, device, context, stream, correlation;
};

struct RangeRow {
  uint64_t start_ns, end_ns, id, parent_id;
  uint32_t name, domain, thread, category;
  wire::RangeKind kind;
  bool unclosed;
  uint32_t color;
  uint64_t payload;
  uint32_t payload_kind;  // wire::PayloadKind
};

struct RangePayloadRow {
  uint64_t range_id, value;
  uint32_t field;  // String
  uint32_t kind;   // wire::PayloadKind
};

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

struct HostStateRow {
  static constexpr size_t kMaxRanges = 16;
  uint64_t io_bytes = 0;
  uint64_t blocked_since_ns = 0;
  uint64_t last_wait_end_ns = 0;
  uint32_t blocked_in = 0;  // String
  size_t open_range_count = 0;
  uint32_t open_ranges[kMaxRanges] = {};  // Strings, innermost first
};

class BatchBuilder {
 public:
  [[nodiscard]] bool Init(SendQueue* queue) noexcept;

  // Ids. A new one is defined in the current batch. 0: none (empty text, or no memory:
  // LOSS_DEFINITIONS_FULL).
  uint32_t String(std::string_view text) noexcept;
  uint32_t KernelName(const char* name, uint32_t epoch) noexcept;
  // It will be asked for soon.
  void ExpectKernelName(const char* name) const noexcept { strings_.ExpectPointer(name); }
  uint32_t Site(const SiteKey& key) noexcept;

  // Definitions and conditions.
  void DefineThread(uint32_t id, uint32_t tid, std::string_view name, bool main,
                    std::string_view given_name = {}) noexcept;
  void DefineDevice(const DeviceRow& device) noexcept;
  void DefineVersions(const VersionsRow& versions) noexcept;
  void DefineCommunicator(const CommunicatorEvent& event, uint32_t made_by) noexcept;
  void DefineNcclIdentity(int32_t rank, int32_t world_size) noexcept;
  // `domain` and `name` are String's answers.
  void DefineCategory(uint32_t domain, uint32_t category, uint32_t name) noexcept;

  // `name` is String's answer.
  void DefineObjectName(const ObjectNameEvent& event, uint32_t name) noexcept;

  // Records.
  void AddKernel(uint64_t start_ns, uint64_t end_ns, uint32_t site, uint32_t correlation,
                 uint64_t graph_node) noexcept {
    KernelBlock block;
    block.Add(start_ns, end_ns, site, correlation, graph_node);
    AddKernels(block);
  }
  void AddKernels(const KernelBlock& block) noexcept {
    if (kernels_.rows + block.rows > kMaxRows) Seal();
    PutKernels(block, &kernels_);
  }
  void AddCopy(const CopyRow& row) noexcept;
  void AddMemset(const MemsetRow& row) noexcept;
  void AddSync(const SyncRow& row) noexcept;
  void AddLaunch(uint32_t thread, const LaunchEvent& event) noexcept;
  void AddRange(const RangeRow& row) noexcept;
  void AddAllocation(const AllocationEvent& event, uint32_t thread) noexcept;
  void AddSmallAllocations(const SmallRun& run) noexcept;
  // Told with the batch that is sealed next.
  void NotePool(const PoolSample& sample) noexcept { pools_.Note(sample); }
  void AddAllocatorLevel(const AllocatorLevelEvent& event) noexcept;
  void AddAllocatorRefusal(const AllocatorRefusalEvent& event) noexcept;
  void AddTensor(const TensorEvent& event) noexcept;
  void AddGraphRun(const GraphRunRow& row) noexcept;
  void AddRangePayload(const RangePayloadRow& row) noexcept;
  void AddRecordedStep(const RecordedStepRow& row) noexcept;
  // Ids of strings.
  struct CollectiveNames {
    uint32_t op, datatype, algorithm, protocol;
  };
  void AddCollective(const CollectiveEvent& event, const CollectiveNames& names, uint32_t thread) noexcept;
  // `from_correlation`: of a graph node that was updated, the first launch in which it carries the plan.
  void AddPlanLaunch(const PlanLaunchEvent& event, uint32_t from_correlation = 0) noexcept;

  // The host state to send with the next batches; does not by itself make a batch worth sending.
  void SetHostState(const HostStateRow& state) noexcept { host_state_ = state; }

  // Counts a record of a CUpti_ActivityKind that nobody decodes. With too many kinds, the last place counts
  // the rest.
  void CountUnknownKind(uint32_t kind) noexcept;
  // A copy that is too small for a record of its own.
  void CountSmallCopy(wire::CopyDirection direction, uint64_t bytes, uint64_t duration_ns) noexcept;

  // True when the batch holds anything that is worth sending.
  bool HasContent() const noexcept { return rows() != 0 || definitions_.size != 0; }
  // Encodes the batch into the queue and starts the next one. False when its records were dropped.
  bool Seal() noexcept;

  uint64_t sequence() const noexcept { return sequence_; }  // of the last sealed batch, 0 before the first
  uint64_t records_sealed() const noexcept { return records_sealed_; }
  DefinitionHistory& history() noexcept { return history_; }

 private:
  void StartBatch() noexcept;
  uint32_t rows() const noexcept;
  size_t MaxEncodedBytes() const noexcept;
  void EncodeSelf(WireWriter& batch) const noexcept;
  void EncodeHostState(WireWriter& batch) const noexcept;
  void EncodeBody(WireBuffer* out) noexcept;
  void CloseLaunches() noexcept;
  void PutPoolLevels() noexcept;
  WireBuffer& RoomForDefinition(size_t bytes) noexcept;
  void CommitDefinition(size_t size_before) noexcept;

  SendQueue* queue_ = nullptr;
  Mapping memory_;
  uint64_t base_ns_ = 0;
  uint64_t sequence_ = 0;
  uint64_t records_sealed_ = 0;

  KernelTable kernels_;
  ColumnTable<wire::CopiesTag> copies_;
  ColumnTable<wire::MemsetsTag> memsets_;
  ColumnTable<wire::SyncsTag> syncs_;
  ColumnTable<wire::LaunchesTag> launches_;  // of launch_thread_
  ColumnTable<wire::RangesTag> ranges_;
  ColumnTable<wire::AllocationsTag> allocations_;
  ColumnTable<wire::AllocatorLevelsTag> allocator_levels_;
  ColumnTable<wire::AllocatorRefusalsTag> allocator_refusals_;
  ColumnTable<wire::TensorsTag> tensors_;
  ColumnTable<wire::CollectivesTag> collectives_;
  ColumnTable<wire::SmallAllocationsTag> small_allocations_;
  ColumnTable<wire::PoolLevelsTag> pool_levels_;
  ColumnTable<wire::PlansTag> plans_;
  ColumnTable<wire::GraphRunsTag> graph_runs_;
  ColumnTable<wire::RecordedStepsTag> recorded_steps_;
  ColumnTable<wire::RangePayloadsTag> range_payloads_;

  uint32_t launch_thread_ = 0;
  uint32_t launch_rows_ = 0;    // of all threads in this batch
  WireBuffer closed_launches_;  // Launches messages of the threads before, as fields of Batch
  WireBuffer definitions_;  // strings, threads, sites, devices, versions, communicators, as fields of Batch

  struct UnknownKind {
    uint32_t kind;
    uint64_t records;
  };
  static constexpr size_t kMaxUnknownKinds = 16;
  UnknownKind unknown_kinds_[kMaxUnknownKinds] = {};
  size_t unknown_kind_count_ = 0;

  struct SmallCopies {
    uint64_t copies;
    uint64_t bytes;
    uint64_t duration_ns;
  };
  static constexpr size_t kDirections = 6;
  SmallCopies small_copies_[kDirections] = {};

  PoolLevels pools_;
  HostStateRow host_state_;

  StringInterner strings_;
  SiteInterner sites_;
  DefinitionHistory history_;
};

}  // namespace gpuprobe::injector
