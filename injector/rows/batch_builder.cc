#include "injector/rows/batch_builder.h"

#include "injector/base/losses.h"
#include "injector/core/guard.h"
#include "injector/rows/frames.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kFixedPartBytes = 4096;  // clock, losses, self report

}  // namespace

bool BatchBuilder::Init(SendQueue* queue, size_t definition_bytes) noexcept {
  queue_ = queue;
  const size_t held = RowTables::kLeastBytes + definition_bytes;
  if (!ChargeMemory(held, MemoryUse::kNeeded)) return false;
  if (!memory_.Reserve(RowTables::kBytes + definition_bytes)) {
    ReleaseMemory(held);
    return false;
  }
  char* const definitions = tables_.Carve(memory_.data());
  StartBatch();
  return Definitions::Init(definitions, definition_bytes, [](Definitions* self) noexcept {
    static_cast<void>(static_cast<BatchBuilder*>(self)->Seal());
  });
}

void BatchBuilder::StartBatch() noexcept {
  base_ns_ = NowNs();
  tables_.Clear(base_ns_);
}

void BatchBuilder::TakePoolLevels() noexcept {
  static_assert(PoolLevels::kMaxPools <= kFewestRows);
  pools_.TakeChanged([this](const PoolLevel& level) noexcept {
    tables_.Of<wire::PoolLevelRow>().Put(
        {.time_ns = level.time_ns,
         .pool = level.pool,
         .device = level.device,
         .used_bytes = level.used_bytes,
         .reserved_bytes = level.reserved_bytes,
         .peak_used_bytes = level.peak_used_bytes,
         .peak_used_at_ns = level.peak_used_ns,
         .peak_reserved_bytes = level.peak_reserved_bytes,
         .peak_reserved_at_ns = level.peak_reserved_ns,
         .release_threshold_bytes = level.release_threshold_bytes,
         .trims = level.trims,
         .state = level.destroyed ? wire::PoolState::kPoolStateDestroyed : wire::PoolState::kPoolStateLive});
  });
}

size_t BatchBuilder::MaxEncodedBytes() const noexcept {
  return kFixedPartBytes + tables_.MaxEncodedBytes() + pending().size;
}

void BatchBuilder::EncodeBody(WireBuffer* out) const noexcept {
  using Tag = wire::BatchTag;
  WireWriter batch(*out);
  batch.add_uint64(Number(Tag::kSequence), sequence_);
  batch.add_fixed64(Number(Tag::kBaseNs), base_ns_);
  batch.add_uint64(Number(Tag::kRecords), rows());
  EncodeClockPair(batch, Number(Tag::kClock));
  AppendFields(*out, pending());
  tables_.Encode(batch, *out);
  EncodeLosses(batch, Number(Tag::kLosses));
  EncodeSelf(batch, unrecorded_, records_sealed_ + rows(), sequence_);
  EncodeHostState(batch, host_state_);
  if (capture_.id != 0) EncodeCapture(batch, capture_);
}

bool BatchBuilder::Seal() noexcept {
  TakePoolLevels();
  const uint32_t records = rows();
  ++sequence_;
  const size_t bytes = MaxEncodedBytes() + kFramePrefixBytes;
  char* memory = queue_->Reserve(bytes);
  bool sealed = false;
  if (memory != nullptr) {
    WireBuffer body{memory + kFramePrefixBytes, bytes - kFramePrefixBytes};
    EncodeBody(&body);
    if (body.overflowed) {
      queue_->Cancel();
    } else {
      const size_t prefix = WriteFramePrefix(memory, wire::FrameTag::kBatch, body.size);
      queue_->Commit(kFramePrefixBytes - prefix, prefix + body.size, records, sequence_);
      sealed = true;
    }
  }
  if (sealed) {
    records_sealed_ += records;
    capture_ = {};
    Sent();
  } else {
    const uint32_t levels = tables_.Of<wire::PoolLevelRow>().rows();  // which are reported again
    if (levels != 0) pools_.TellAgain();
    CountLoss(
        queue_->connected() ? wire::LossReason::kLossSendQueueFull : wire::LossReason::kLossNotConnected,
        records - levels);
  }
  StartBatch();
  return sealed;
}

}  // namespace gpuprobe::injector
