// How the generated rows are described to the code that writes and reads them: a list of columns for each row
// type.
//
// Generated from wire.proto: wire_rows.h for the injector, wire_records.h for the collector. Each specialises
// TableOf for its structs; injector/rows/columns.h and collector/records/rows.h walk over the lists.
#pragma once

#include <cstdint>

namespace gpuprobe::wire {

// gpuprobe/v1/columns.proto defines each.
enum class Role : uint8_t { kValue, kDelta, kStart, kTime, kEnd, kAfter, kBefore };
enum class Coding : uint8_t { kPlain, kZigZag, kPlusOne };

constexpr bool IsTime(Role role) { return role != Role::kValue && role != Role::kDelta; }

// One column: its field's number, and the member of the row that it holds. `of`: the member that it is a
// distance from. `text`: it is a StringDef's id.
template <int number, Role role, Coding coding, auto member, auto of = nullptr, bool may_be_none = false,
          bool text = false>
struct Column {
  static constexpr int kNumber = number;
  static constexpr Role kRole = role;
  static constexpr Coding kCoding = coding;
  static constexpr auto kMember = member;
  static constexpr auto kOf = of;
  static constexpr bool kMayBeNone = may_be_none;
  static constexpr bool kIsText = text;
};

template <typename... Columns>
struct ColumnList {};

// The table that a row type belongs to.
template <typename Row>
struct TableOf;

}  // namespace gpuprobe::wire
