// The tables of all row types: what a batch holds besides its definitions.
//
// One table for each row type of wire_rows.h; an operation on all tables is a fold over that list. Thread:
// the one that holds the builder's lock. Allocation: none; the memory is handed in. Failure: none; a table
// that does not admit a row has to be sealed first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "injector/rows/columns.h"
#include "injector/rows/frames.h"

namespace gpuprobe::injector {

// A table whose messages each have the rows of one key: launches of one thread. A row with another key closes
// the message so far, as bytes.
template <typename Row>
class KeyedTable {
 public:
  using Of = wire::TableOf<Row>;
  static constexpr size_t ClosedBytesFor(uint32_t rows) noexcept {
    return Of::kPlaces * kValueBytes * rows + 256 * kFieldOverhead;
  }
  static constexpr size_t kBytes = ColumnTable<Row>::kBytes + ClosedBytesFor(kMaxRows);
  static constexpr size_t kLeastBytes = ColumnTable<Row>::kLeastBytes + ClosedBytesFor(kFewestRows);

  uint32_t rows() const noexcept { return rows_; }
  // A new message is only begun if the rest of the batch's rows would have room among the closed ones.
  bool Admits(const Row& row) noexcept {
    if (rows_ == open_.most_rows() && !Grow()) return false;
    if (open_.rows() == 0 || row.*Of::kKey == key_) return true;
    Close();
    return HasRoomForRest();
  }
  void Put(const Row& row) noexcept {
    key_ = row.*Of::kKey;
    open_.Put(row);
    ++rows_;
  }

  char* Carve(char* memory) noexcept {
    memory = open_.Carve(memory);
    closed_ = {memory, ClosedBytesFor(kFewestRows)};
    return memory + ClosedBytesFor(kMaxRows);
  }
  void Clear(uint64_t base_ns) noexcept {
    base_ns_ = base_ns;
    open_.Clear(base_ns);
    closed_.size = 0;
    rows_ = 0;
  }

  size_t MaxEncodedBytes() const noexcept { return closed_.size + open_.MaxEncodedBytes() + kFieldOverhead; }
  void Encode(WireWriter& batch, WireBuffer& out) const noexcept {
    AppendFields(out, closed_);
    EncodeOpen(batch);
  }

 private:
  bool HasRoomForRest() const noexcept {
    return closed_.room() >= (Of::kPlaces + 2) * kFieldOverhead +
                                 size_t{Of::kPlaces} * (open_.most_rows() - rows_) * kValueBytes;
  }
  bool Grow() noexcept {
    const uint32_t rows = open_.most_rows();
    const size_t more = ClosedBytesFor(2 * rows) - ClosedBytesFor(rows);
    if (rows == kMaxRows || !ChargeMemory(more, MemoryUse::kOrdinary)) return false;
    if (!open_.Grow()) {
      ReleaseMemory(more);
      return false;
    }
    closed_.capacity = ClosedBytesFor(2 * rows);
    return true;
  }
  void EncodeOpen(WireWriter& fields) const noexcept {
    if (open_.rows() == 0) return;
    WireWriter message(fields, Number(Of::kField));
    message.add_uint32(Of::kKeyNumber, key_);
    open_.EncodeColumns(message);
  }
  void Close() noexcept {
    WireWriter fields(closed_);
    EncodeOpen(fields);
    open_.Clear(base_ns_);
  }

  ColumnTable<Row> open_;  // of key_
  WireBuffer closed_;      // messages of the keys before, as fields of Batch
  uint32_t key_ = 0;
  uint32_t rows_ = 0;  // of all keys
  uint64_t base_ns_ = 0;
};

template <typename Row>
using TableFor = std::conditional_t<wire::TableOf<Row>::kKeyNumber != 0, KeyedTable<Row>, ColumnTable<Row>>;

template <typename... Rows>
class TablesOf : private TableFor<Rows>... {
 public:
  static constexpr size_t kBytes = (TableFor<Rows>::kBytes + ...);
  static constexpr size_t kLeastBytes = (TableFor<Rows>::kLeastBytes + ...);  // charged when they are made

  template <typename Row>
  TableFor<Row>& Of() noexcept {
    return *this;
  }
  template <typename Row>
  const TableFor<Row>& Of() const noexcept {
    return *this;
  }

  // `memory` has kBytes.
  char* Carve(char* memory) noexcept {
    ((memory = Of<Rows>().Carve(memory)), ...);
    return memory;
  }
  void Clear(uint64_t base_ns) noexcept { (Of<Rows>().Clear(base_ns), ...); }
  uint32_t rows() const noexcept { return (Of<Rows>().rows() + ...); }
  size_t MaxEncodedBytes() const noexcept { return (Of<Rows>().MaxEncodedBytes() + ...); }
  // `batch` writes to `out`.
  void Encode(WireWriter& batch, WireBuffer& out) const noexcept { (Encode(Of<Rows>(), batch, out), ...); }

 private:
  template <typename Row>
  static void Encode(const ColumnTable<Row>& table, WireWriter& batch, WireBuffer& /*out*/) noexcept {
    table.Encode(batch);
  }
  template <typename Row>
  static void Encode(const KeyedTable<Row>& table, WireWriter& batch, WireBuffer& out) noexcept {
    table.Encode(batch, out);
  }
};

using RowTables = wire::AllRows<TablesOf>;

}  // namespace gpuprobe::injector
