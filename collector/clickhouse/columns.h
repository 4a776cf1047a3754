// How the members of a row become columns of a table: their ClickHouse types and codecs, and their bytes in
// RowBinary.
//
// A row is a struct that declares each column once, below its members:
//
//   struct StepRow {
//     JobKey job;
//     Time start;
//     uint64_t compute_ns = 0;
//
//     static constexpr void Declare(auto& columns) {
//       columns.Inline(&StepRow::job);
//       columns("start", &StepRow::start, "when it began on the device");
//       columns("compute_ns", &StepRow::compute_ns, "union of its kernels").Since(2);
//     }
//   };
//
// A name ends in its unit. Since: the migration that added the column (schema.h); without it, the first one
// of its table.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"

namespace gpuprobe::clickhouse {

// Since the epoch, in UTC.
struct Time {
  uint64_t ns = 0;
};

// One of a few thousand different ones: the table keeps each once.
struct Word {
  std::string text = {};
};

struct Column {
  std::string name;
  std::string type;   // of ClickHouse
  std::string codec;  // empty: the table's default
  std::string meaning;
  int since = 0;  // 0: since its table
};

namespace binary {

// REQUIRES: a little-endian machine, as all are that CUDA runs on.
static_assert(std::endian::native == std::endian::little);

template <typename T>
requires std::is_arithmetic_v<T>
inline void Put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}
inline void PutLength(std::string& out, uint64_t length) {
  for (; length >= 0x80; length >>= 7) out.push_back(static_cast<char>(length | 0x80));
  out.push_back(static_cast<char>(length));
}
inline void Put(std::string& out, const std::string& text) {
  PutLength(out, text.size());
  out += text;
}
inline void Put(std::string& out, const Word& word) { Put(out, word.text); }
inline void Put(std::string& out, Time time) { Put(out, static_cast<int64_t>(time.ns)); }
template <typename T>
void Put(std::string& out, const std::optional<T>& value) {
  Put(out, static_cast<uint8_t>(value.has_value() ? 0 : 1));
  if (value.has_value()) Put(out, *value);
}
template <typename T>
void Put(std::string& out, const std::vector<T>& values) {
  PutLength(out, values.size());
  for (const T& value : values) Put(out, value);
}

template <typename T>
requires std::is_arithmetic_v<T>
inline bool Get(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return true;
}
inline bool GetLength(std::string_view& bytes, uint64_t& length) {
  length = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte = 0;
    if (!Get(bytes, byte)) return false;
    length |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return length <= bytes.size();  // each element has a byte at least
  }
  return false;
}
inline bool Get(std::string_view& bytes, std::string& text) {
  uint64_t length = 0;
  if (!GetLength(bytes, length)) return false;
  text.assign(bytes.substr(0, length));
  bytes.remove_prefix(length);
  return true;
}
inline bool Get(std::string_view& bytes, Word& word) { return Get(bytes, word.text); }
inline bool Get(std::string_view& bytes, Time& time) { return Get(bytes, time.ns); }
template <typename T>
bool Get(std::string_view& bytes, std::optional<T>& value) {
  uint8_t is_null = 0;
  if (!Get(bytes, is_null)) return false;
  value.reset();
  return is_null != 0 || Get(bytes, value.emplace());
}
template <typename T>
bool Get(std::string_view& bytes, std::vector<T>& values) {
  uint64_t length = 0;
  if (!GetLength(bytes, length)) return false;
  values.clear();
  for (; length > 0; --length) {
    if (!Get(bytes, values.emplace_back())) return false;
  }
  return true;
}

}  // namespace binary

template <typename T>
struct TypeName;
template <>
struct TypeName<bool> {
  static std::string Of() { return "Bool"; }
};
template <std::integral T>
struct TypeName<T> {
  static std::string Of() { return absl::StrCat(std::is_signed_v<T> ? "Int" : "UInt", 8 * sizeof(T)); }
};
template <>
struct TypeName<double> {
  static std::string Of() { return "Float64"; }
};
template <>
struct TypeName<std::string> {
  static std::string Of() { return "String"; }
};
template <>
struct TypeName<Word> {
  static std::string Of() { return "LowCardinality(String)"; }
};
template <>
struct TypeName<Time> {
  static std::string Of() { return "DateTime64(9, 'UTC')"; }
};
template <typename T>
struct TypeName<std::optional<T>> {
  static std::string Of() { return absl::StrCat("Nullable(", TypeName<T>::Of(), ")"); }
};
template <typename T>
struct TypeName<std::vector<T>> {
  static std::string Of() { return absl::StrCat("Array(", TypeName<T>::Of(), ")"); }
};

// Times of neighbouring rows differ little, and counts and durations leave their upper bits empty.
template <typename T>
std::string CodecOf() {
  if constexpr (std::is_same_v<T, Time>) return "Delta, ZSTD(1)";
  if constexpr (std::integral<T> && sizeof(T) >= 4) return "T64, ZSTD(1)";
  return "ZSTD(1)";
}

// Collects what Declare says.
class Columns {
 public:
  template <typename Row, typename Member>
  Columns& operator()(const char* name, Member Row::*, const char* meaning) {
    columns_.push_back(
        {.name = name, .type = TypeName<Member>::Of(), .codec = CodecOf<Member>(), .meaning = meaning});
    return *this;
  }
  template <typename Row, typename Part>
  Columns& Inline(Part Row::*) {
    Part::Declare(*this);
    return *this;
  }
  Columns& Since(int migration) {
    columns_.back().since = migration;
    return *this;
  }
  std::vector<Column> Take() && { return std::move(columns_); }

 private:
  std::vector<Column> columns_;
};

template <typename Row>
std::vector<Column> ColumnsOf() {
  Columns columns;
  Row::Declare(columns);
  return std::move(columns).Take();
}

// Appends a row's values in the order of its columns.
template <typename Row>
class RowBinary {
 public:
  RowBinary(const Row& row, std::string& out) : row_(row), out_(out) {}
  template <typename Owner, typename Member>
  RowBinary& operator()(const char*, Member Owner::*member, const char*) {
    binary::Put(out_, row_.*member);
    return *this;
  }
  template <typename Part>
  RowBinary& Inline(Part Row::*part) {
    RowBinary<Part> inner(row_.*part, out_);
    Part::Declare(inner);
    return *this;
  }
  RowBinary& Since(int) { return *this; }

 private:
  const Row& row_;
  std::string& out_;
};

// The reverse: for our own rows, in our own files.
template <typename Row>
class RowReader {
 public:
  RowReader(Row& row, std::string_view& bytes) : row_(row), bytes_(bytes) {}
  template <typename Owner, typename Member>
  RowReader& operator()(const char*, Member Owner::*member, const char*) {
    ok_ = ok_ && binary::Get(bytes_, row_.*member);
    return *this;
  }
  template <typename Part>
  RowReader& Inline(Part Row::*part) {
    RowReader<Part> inner(row_.*part, bytes_);
    Part::Declare(inner);
    ok_ = ok_ && inner.ok();
    return *this;
  }
  RowReader& Since(int) { return *this; }
  bool ok() const { return ok_; }

 private:
  Row& row_;
  std::string_view& bytes_;
  bool ok_ = true;
};

// False if these bytes are no such row.
template <typename Row>
bool ReadRow(std::string_view bytes, Row& row) {
  RowReader<Row> reader(row, bytes);
  Row::Declare(reader);
  return reader.ok() && bytes.empty();
}

// "job, attempt, ..."
template <typename Row>
std::string ColumnList() {
  std::string list;
  for (const Column& column : ColumnsOf<Row>()) absl::StrAppend(&list, list.empty() ? "" : ", ", column.name);
  return list;
}

template <typename Row>
void AppendRow(const Row& row, std::string& out) {
  RowBinary<Row> binary(row, out);
  Row::Declare(binary);
}

}  // namespace gpuprobe::clickhouse
