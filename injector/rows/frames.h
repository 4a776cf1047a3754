// The parts of the wire that are not a Batch's columns: frame prefixes, clock pairs, Hello and Bye.
//
// The sender needs them without a builder. Thread: any. Allocation: none; output is a bounded buffer.
// Failure: WireBuffer::overflowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/core/step_gate.h"
#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

struct Identity;

// Room that is kept before a message for the delimiting length, the frame's tag and the message's length.
inline constexpr size_t kFramePrefixBytes = 16;

// Writes the prefix of a message of `body_bytes` so that it ends at `start + kFramePrefixBytes`; returns its
// length.
size_t WriteFramePrefix(char* start, wire::FrameTag tag, size_t body_bytes) noexcept;

// Appends encoded fields as they are.
inline void AppendFields(WireBuffer& out, const WireBuffer& fields) noexcept {
  protozero::buffer_customization<WireBuffer>::append(&out, fields.data, fields.size);
}

// (CLOCK_REALTIME, CLOCK_MONOTONIC), now, as the ClockPair field `tag` of `message`.
void EncodeClockPair(WireWriter& message, protozero::pbf_tag_type tag) noexcept;

struct HelloFacts {
  bool has_gpu_times = false;  // CUPTI activity records will come
  wire::LoadedBy loaded_by = wire::LoadedBy::kLoadedByUnknown;
  uint32_t recording_ranks = 0;  // of the job; 0: all
  StepRule steps = {};           // what is recorded; without marker: everything
  std::string_view step_marker = {};
  // See wire.proto's Hello.
  uint64_t instance = 0;
  uint64_t first_sequence = 0;
  uint64_t records_before = 0;
  std::string_view wanted_directory = {};  // for the run; a collector that processes start records there
  bool resumes = false;                    // there it was recorded, by a collector that died
};

struct ByeFacts {
  wire::ByeReason reason = wire::ByeReason::kByeReasonUnknown;
  uint64_t batches = 0;  // sequence of the last one
  uint64_t records = 0;  // in all of them
  bool ends_collector = false;
};

// The losses so far, as the repeated Loss field `tag` of `message`.
void EncodeLosses(WireWriter& message, protozero::pbf_tag_type tag) noexcept;

// Whole delimited frames, appended to `out`. False when they did not fit.
bool EncodeHello(const Identity& identity, const HelloFacts& facts, WireBuffer* out) noexcept;
bool EncodeBye(const ByeFacts& facts, WireBuffer* out) noexcept;

}  // namespace gpuprobe::injector
