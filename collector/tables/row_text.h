// A record's row as the export prints it, one flat JSON object, taken apart into its fields.
//
// Tables are made from these rows, so that jsonl, CSV and SQLite have the same fields without a second list
// of them. Only what the export writes is understood: members without spaces between them, and nested values
// left as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuprobe::tables {

// The first field of a row: which kind of record it is, and so which table it goes into.
inline constexpr char kKind[] = "kind";

enum class ValueType : uint8_t { kNone, kInteger, kReal, kText, kJson };

struct Field {
  std::string_view key;
  std::string_view value;  // as JSON
};

// Splits a row at its top level; views into `row`. False if it is not a row.
bool SplitRow(std::string_view row, std::vector<Field>& fields);

ValueType TypeOf(std::string_view json_value);
// The text of a quoted value; other values as they are.
std::string TextOf(std::string_view json_value);

}  // namespace gpuprobe::tables
