// Extended payloads: the layouts that the program describes (NVTX's payload schemas), and the numbers in what
// it passes with a range.
//
// A layout is registered once and read on another thread: the program's thread only copies bytes, no more
// than the layout has and no more than the program says there are; the probe's thread extracts the numbers.
// A layout keeps only numbers at fixed offsets: integers, floating-point numbers, enumerations, and those of
// nested layouts; not pointers' targets, arrays or texts. Thread: registering and reading on any, extracting
// on the probe's own. Allocation: none; static tables. Failure: a field that finds no place, or lies beyond
// kMaxPayloadBytes, is counted as LOSS_DEFINITIONS_FULL when it is registered, and what cannot be read as
// LOSS_UNREADABLE; a payload of an unknown layout is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/capture/nvtx/payload_abi.h"
#include "injector/core/events.h"

namespace gpuprobe::injector::nvtx {

inline constexpr size_t kMaxSchemas = 512;
inline constexpr size_t kMaxFields = 8192;  // of all schemas
inline constexpr size_t kMaxFieldName = 64;
inline constexpr size_t kMaxPayloadBytes = kMaxNameBytes;  // of one payload
inline constexpr int kMaxPayloads = 4;                     // of one event

// The id of the layout, 0 when it cannot be used. `attributes`: abi::SchemaAttributes, abi::EnumAttributes.
uint64_t RegisterSchema(const void* domain, const void* attributes) noexcept;
uint64_t RegisterEnum(const void* domain, const void* attributes) noexcept;

// What an event carries, copied.
struct PayloadBytes {
  uint32_t schema = 0;  // for TakeField; 0: nothing that can be read
  uint32_t size = 0;
  const void* bytes = nullptr;  // the program's, not read yet
};
PayloadBytes FindPayload(const void* domain, const abi::PayloadData& data) noexcept;
// Name of a layout; empty when it has none.
std::string_view SchemaName(uint32_t schema) noexcept;

// The `field`-th number in `bytes`; false behind the last one.
struct PayloadField {
  std::string_view name;
  uint64_t value = 0;
  wire::PayloadKind kind = wire::PayloadKind::kPayloadKindNone;
};
bool TakeField(uint32_t schema, size_t field, std::string_view bytes, PayloadField* out) noexcept;

}  // namespace gpuprobe::injector::nvtx
