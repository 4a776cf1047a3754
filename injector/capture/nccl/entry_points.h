// Names and kinds of the NCCL functions of entry_points.inc, as constexpr data.
//
// Everything that names an operation without wrapping it (events, encoder, scanner, tests) needs only this.
// Any thread; no allocation; unknown input gives an empty name or kCount.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/base/text.h"

namespace gpuprobe::injector::nccl {

// In the order of the table. CollectiveEvent.op is one of these.
enum class EntryPoint : uint16_t {
#define NCCL_ENTRY(scope, name, params, args, facts) k##name,
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
  kCount,
};

inline constexpr size_t kEntryPoints = static_cast<size_t>(EntryPoint::kCount);

// Without the prefix: "AllReduce".
inline constexpr std::string_view kEntryPointNames[] = {
#define NCCL_ENTRY(scope, name, params, args, facts) #name,
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
};

// As exported, terminated: "ncclAllReduce" and "pncclAllReduce".
inline constexpr const char* kSymbolNames[] = {
#define NCCL_ENTRY(scope, name, params, args, facts) "nccl" #name,
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
};
inline constexpr const char* kProfilingSymbolNames[] = {
#define NCCL_ENTRY(scope, name, params, args, facts) "pnccl" #name,
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
};

// Name of an operation for the wire, empty if `op` is not one of ours.
constexpr std::string_view OpName(uint16_t op) noexcept {
  return op < kEntryPoints ? kEntryPointNames[op] : std::string_view();
}

// By its name alone ("AllReduce"); kCount if none.
constexpr EntryPoint FindOperation(std::string_view name) noexcept {
  for (size_t i = 0; i < kEntryPoints; ++i) {
    if (kEntryPointNames[i] == name) return static_cast<EntryPoint>(i);
  }
  return EntryPoint::kCount;
}

// The entry point that `symbol` ("ncclAllReduce" or "pncclAllReduce") names, kCount if none.
constexpr EntryPoint FindEntryPoint(std::string_view symbol) noexcept {
  if (!symbol.empty() && symbol.front() == 'p') symbol.remove_prefix(1);
  if (!StartsWith(symbol, "nccl")) return EntryPoint::kCount;
  symbol.remove_prefix(4);
  return FindOperation(symbol);
}

constexpr bool IsPointToPoint(EntryPoint op) noexcept {
  return op == EntryPoint::kSend || op == EntryPoint::kRecv;
}

// Writes to a peer, or waits for peers' writes. It has no kernel and no matching call on the peer.
constexpr bool IsOneSided(EntryPoint op) noexcept {
  return op == EntryPoint::kPutSignal || op == EntryPoint::kSignal || op == EntryPoint::kWaitSignal;
}

// ncclDataType_t as the wire names it: "float32"; empty for a value that this version does not know.
constexpr std::string_view DataTypeName(uint8_t datatype) noexcept {
  constexpr std::string_view kNames[] = {"int8",    "uint8",    "int32",       "uint32",
                                         "int64",   "uint64",   "float16",     "float32",
                                         "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
  return datatype < std::size(kNames) ? kNames[datatype] : std::string_view();
}

// Number of a reduction operation in events; 0: none.
constexpr uint8_t ReductionNumber(int64_t reduction) noexcept {
  constexpr int64_t kBuiltIn = 5;  // sum to avg; further ones are made by the program
  return static_cast<uint8_t>(reduction < 0 ? 0 : 1 + (reduction < kBuiltIn ? reduction : kBuiltIn));
}

// By that number, as the wire names it; empty for none.
constexpr std::string_view ReductionName(uint8_t number) noexcept {
  constexpr std::string_view kNames[] = {"", "sum", "prod", "max", "min", "avg", "custom"};
  return number < std::size(kNames) ? kNames[number] : std::string_view();
}

// Bytes of one element, 0 for a type that this version does not know.
constexpr uint32_t DataTypeBytes(uint8_t datatype) noexcept {
  constexpr uint8_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return datatype < std::size(kBytes) ? kBytes[datatype] : 0;
}

}  // namespace gpuprobe::injector::nccl
