// Encodes rows into columnar Batch frames (wire.proto's Batch).
//
// Rows come from capture/cupti/decoder and ledgers/event_drain, frames go to send_queue. Example:
// Add(wire::CopyRow{..}) appends to each column of the message Copies; Seal encodes all tables, with the
// definitions that they need. Thread: one at a time, under the lock of stream.h. Allocation: one mapping at
// Init, which is charged as batches grow; none for a row. Failure: when the queue has no room, the rows of
// the batch are dropped and counted (LOSS_SEND_QUEUE_FULL), but its definitions stay and go with a later
// batch, because ids keep their meaning.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_rows.h"
#include "injector/base/mapping.h"
#include "injector/rows/definitions.h"
#include "injector/rows/kernel_columns.h"
#include "injector/rows/pool_levels.h"
#include "injector/rows/row_tables.h"
#include "injector/rows/self_fields.h"
#include "injector/send/send_queue.h"

namespace gpuprobe::injector {

class BatchBuilder : public Definitions {
 public:
  // `definition_bytes`: room for definitions of a batch.
  [[nodiscard]] bool Init(SendQueue* queue, size_t definition_bytes = kMostDefinitionBytes) noexcept;

  // A row of wire_rows.h. Seals the batch first if its table is full.
  template <typename Row>
  void Add(const Row& row) noexcept {
    auto& table = tables_.Of<Row>();
    if (!table.Admits(row)) [[unlikely]]
      Seal();
    table.Put(row);
  }
  void AddKernels(const KernelBlock& block) noexcept {
    auto& kernels = tables_.Of<wire::KernelRow>();
    if (!kernels.AdmitsRows(block.rows)) Seal();
    PutKernels(block, &kernels);
  }
  // Reported with the batch that is sealed next.
  void NotePool(const PoolSample& sample) noexcept { pools_.Note(sample); }
  // The host state to send with the next batches; does not by itself make a batch worth sending.
  void SetHostState(const HostStateRow& state) noexcept { host_state_ = state; }
  // Goes with the next batch, once, and makes it worth sending.
  void SetCapture(const CaptureRow& capture) noexcept { capture_ = capture; }
  // Counts records that have no row.
  UnrecordedCounts& unrecorded() noexcept { return unrecorded_; }

  // True when the batch holds anything that is worth sending. The cost of collecting records does not count:
  // each flush adds to it.
  bool HasContent() const noexcept {
    return rows() != tables_.Of<wire::OverheadRow>().rows() || pending().size != 0 || capture_.id != 0;
  }
  // Encodes the batch into the queue and starts the next one. False when its records were dropped.
  bool Seal() noexcept;

  uint64_t sequence() const noexcept { return sequence_; }  // of the last sealed batch, 0 before the first
  uint64_t records_sealed() const noexcept { return records_sealed_; }

 private:
  void StartBatch() noexcept;
  void TakePoolLevels() noexcept;
  uint32_t rows() const noexcept { return tables_.rows() + pools_.changed(); }
  size_t MaxEncodedBytes() const noexcept;
  void EncodeBody(WireBuffer* out) const noexcept;

  SendQueue* queue_ = nullptr;
  Mapping memory_;
  uint64_t base_ns_ = 0;
  uint64_t sequence_ = 0;
  uint64_t records_sealed_ = 0;

  RowTables tables_;
  UnrecordedCounts unrecorded_;
  PoolLevels pools_;
  HostStateRow host_state_;
  CaptureRow capture_;
};

}  // namespace gpuprobe::injector
