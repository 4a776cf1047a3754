// The fields of a batch that are no rows: what the probe reports about itself, and what the host is doing.
//
// Thread: the one that holds the builder's lock. Allocation: none. Failure: none; with too many unknown
// kinds, the last place counts the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/core/host_state.h"
#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

// Counts what CUPTI delivered but no row records. Cumulative.
class UnrecordedCounts {
 public:
  // A record of a CUpti_ActivityKind that the decoder does not know.
  void UnknownKind(uint32_t kind) noexcept;
  // A copy that is too small for a record of its own.
  void SmallCopy(wire::CopyDirection direction, uint64_t bytes, uint64_t duration_ns) noexcept;

  void Encode(WireWriter& self) const noexcept;

 private:
  struct OfKind {
    uint32_t kind;
    uint64_t records;
  };
  static constexpr size_t kMaxUnknownKinds = 16;
  OfKind unknown_kinds_[kMaxUnknownKinds] = {};
  size_t unknown_kind_count_ = 0;

  struct Copies {
    uint64_t copies;
    uint64_t bytes;
    uint64_t duration_ns;
  };
  static constexpr size_t kDirections = 6;
  Copies small_copies_[kDirections] = {};
};

struct CreationRow {
  CommunicatorCreation facts = {};
  uint32_t made_by = 0;  // String
  bool known = false;
};

struct HostStateRow {
  static constexpr size_t kMaxRanges = 16;
  uint64_t io_bytes = 0;
  uint64_t blocked_since_ns = 0;
  uint64_t last_wait_end_ns = 0;
  uint32_t blocked_in = 0;  // String
  size_t open_range_count = 0;
  uint32_t open_ranges[kMaxRanges] = {};  // Strings, innermost first
  CreationRow creating;
  CreationRow refused;
};

// CaptureState on the wire. `id` 0: nothing to say.
struct CaptureRow {
  uint64_t id = 0;
  wire::CapturePhase phase = wire::CapturePhase::kCapturePhaseNone;
  wire::CaptureClock clock = wire::CaptureClock::kCaptureClockNone;
  bool has_marker = false;
  uint64_t steps_begun = 0;
  uint64_t communicator = 0;
  uint32_t communicator_ranks = 0;
  uint64_t calls = 0;
  uint32_t calls_per_step = 0;
  uint64_t step_call = 0;
  uint64_t steps = 0;
};

// As fields of Batch. `records` and `batches`: with this one, sent and made so far.
void EncodeSelf(WireWriter& batch, const UnrecordedCounts& counts, uint64_t records,
                uint64_t batches) noexcept;
void EncodeHostState(WireWriter& batch, const HostStateRow& state) noexcept;
void EncodeCapture(WireWriter& batch, const CaptureRow& capture) noexcept;

}  // namespace gpuprobe::injector
