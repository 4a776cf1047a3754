// Columns of varints, and tables of them: a columnar message before it is sealed.
//
// Every record kind is one such table, whose columns wire.proto describes (proto/columns.h). Thread: the one
// that holds the builder's lock. Allocation: none; row_tables.h carves all columns out of one mapping, large
// enough for the most rows that a batch may have, so that writing a value needs no check. A table begins with
// room for kFewestRows, and is charged to the account as it grows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpuprobe/v1/wire_rows.h"
#include "injector/base/memory_account.h"
#include "injector/rows/varints.h"
#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

inline constexpr uint32_t kMaxRows = 16384;    // of one kind in one batch: 120 KB of kernels
inline constexpr uint32_t kFewestRows = 1024;  // that a table has room for, however little memory there is
inline constexpr size_t kValueBytes = 10;      // of the longest varint
inline constexpr size_t kColumnBytes = size_t{kMaxRows} * kValueBytes;

// What the pages of `columns` columns take that hold so many rows.
constexpr size_t ColumnPages(int columns, uint32_t rows) noexcept {
  constexpr size_t kPageBytes = 4096;
  return ((rows * kValueBytes + kPageBytes - 1) & ~(kPageBytes - 1)) * static_cast<size_t>(columns);
}

struct Column {
  char* begin = nullptr;
  char* end = nullptr;
  uint64_t previous = 0;  // of a delta column
  uint64_t any = 0;       // all values ored: 0 means that the column can be left out

  void Put(uint64_t value) noexcept {
    any |= value;
    end = WriteVarint(end, value);
  }
  void PutSigned(int64_t value) noexcept { Put(protozero::encode_zigzag64(value)); }
  void PutDelta(uint64_t value) noexcept {
    PutSigned(static_cast<int64_t>(value - previous));
    previous = value;
  }
  void Clear() noexcept {
    end = begin;
    previous = 0;
    any = 0;
  }
  size_t size() const noexcept { return static_cast<size_t>(end - begin); }
};

// The table of one row type; a column's place is its field number less the first one's.
template <typename Row>
class ColumnTable {
 public:
  using Of = wire::TableOf<Row>;
  using Tag = typename Of::Tag;
  static constexpr size_t kBytes = Of::kPlaces * kColumnBytes;
  static constexpr size_t kLeastBytes = ColumnPages(Of::kPlaces, kFewestRows);

  uint32_t rows() const noexcept { return rows_; }
  // Whether it takes `row`, or has to be sealed before.
  bool Admits(const Row& /*row*/) noexcept { return AdmitsRows(1); }
  bool AdmitsRows(uint32_t rows) noexcept {
    return rows_ + rows <= most_rows_ || (Grow() && AdmitsRows(rows));
  }
  uint32_t most_rows() const noexcept { return most_rows_; }
  // False: it has room for as many rows as a batch may have, or the account refuses.
  bool Grow() noexcept {
    const size_t more = ColumnPages(Of::kPlaces, 2 * most_rows_) - ColumnPages(Of::kPlaces, most_rows_);
    if (most_rows_ == kMaxRows || !ChargeMemory(more, MemoryUse::kOrdinary)) return false;
    most_rows_ *= 2;
    return true;
  }

  char* Carve(char* memory) noexcept {
    for (Column& column : columns_) {
      column.begin = column.end = memory;
      memory += kColumnBytes;
    }
    return memory;
  }

  void Clear(uint64_t base_ns) noexcept {
    for (Column& column : columns_) column.Clear();
    rows_ = 0;
    previous_time_ns_ = base_ns;
  }

  void Put(const Row& row) noexcept {
    PutColumns(row, typename Of::Columns{});
    if constexpr (Of::kPrevious != nullptr) previous_time_ns_ = row.*Of::kPrevious;
    ++rows_;
  }

  // For a kind that has an encoder of its own.
  Column& operator[](Tag tag) noexcept { return columns_[static_cast<int>(tag) - Of::kFirst]; }
  uint64_t previous_time_ns() const noexcept { return previous_time_ns_; }
  void AddRows(uint32_t rows, uint64_t last_time_ns) noexcept {
    rows_ += rows;
    previous_time_ns_ = last_time_ns;
  }

  size_t MaxEncodedBytes() const noexcept {
    size_t bytes = kFieldOverhead;
    for (const Column& column : columns_) bytes += column.size() + kFieldOverhead;
    return bytes;
  }

  void Encode(WireWriter& batch) const noexcept {
    if (rows_ == 0) return;
    WireWriter message(batch, Number(Of::kField));
    EncodeColumns(message);
  }

  void EncodeColumns(WireWriter& message) const noexcept {
    for (int place = 0; place < Of::kPlaces; ++place) {
      const Column& column = columns_[place];
      // If all values are zero, no column would be left, and readers would see no row: the first one stays.
      if (column.any != 0 || place == 0) {
        message.add_bytes(static_cast<protozero::pbf_tag_type>(place + Of::kFirst), column.begin,
                          column.size());
      }
    }
  }

 private:
  template <typename... Columns>
  void PutColumns(const Row& row, wire::ColumnList<Columns...> /*columns*/) noexcept {
    (PutColumn(Columns{}, row, columns_[Columns::kNumber - Of::kFirst]), ...);
  }

  template <typename Spec>
  void PutColumn(Spec /*spec*/, const Row& row, Column& column) noexcept {
    using wire::Coding;
    using wire::Role;
    if constexpr (Spec::kRole == Role::kDelta) {
      column.PutDelta(row.*Spec::kMember);
    } else if constexpr (Spec::kRole == Role::kStart || Spec::kRole == Role::kTime) {
      column.PutSigned(static_cast<int64_t>(row.*Spec::kMember - previous_time_ns_));
    } else if constexpr (Spec::kRole == Role::kBefore) {
      PutBefore<Spec>(row, column);
    } else if constexpr (Spec::kOf != nullptr) {
      const uint64_t after = row.*Spec::kMember - row.*Spec::kOf;
      if constexpr (Spec::kCoding == Coding::kZigZag) {
        column.PutSigned(static_cast<int64_t>(after));
      } else {
        column.Put(after);
      }
    } else if constexpr (Spec::kCoding == Coding::kZigZag) {
      column.PutSigned(row.*Spec::kMember);
    } else if constexpr (Spec::kCoding == Coding::kPlusOne) {
      column.Put(static_cast<uint32_t>(row.*Spec::kMember + 1));
    } else {
      column.Put(static_cast<uint64_t>(row.*Spec::kMember));
    }
  }

  template <typename Spec>
  static void PutBefore(const Row& row, Column& column) noexcept {
    const uint64_t time_ns = row.*Spec::kMember;
    const uint64_t before = Spec::kMayBeNone && time_ns == 0 ? 0 : row.*Spec::kOf - time_ns;
    if constexpr (Spec::kCoding == wire::Coding::kZigZag) {
      column.PutSigned(static_cast<int64_t>(before));
    } else {
      column.Put(time_ns > row.*Spec::kOf ? 0 : before);
    }
  }

  Column columns_[Of::kPlaces];
  uint32_t rows_ = 0;
  uint32_t most_rows_ = kFewestRows;
  uint64_t previous_time_ns_ = 0;
};

}  // namespace gpuprobe::injector
