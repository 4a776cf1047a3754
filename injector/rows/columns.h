// Columns of varints, and tables of them: a columnar message before it is sealed.
//
// Every record kind is one such table. Thread: whoever holds the builder's lock. Allocation: none; the
// builder carves all columns out of one mapping, large enough for the most rows that a batch may have, so
// that writing a value needs no check.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"
#include "injector/rows/varints.h"
#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

inline constexpr uint32_t kMaxRows = 16384;  // of one kind in one batch: 120 KB of kernels
inline constexpr size_t kColumnBytes = size_t{kMaxRows} * 10;

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

// The columns of one message; a column's place is its field number less the first one's.
template <typename Tag>
struct ColumnTable {
  static constexpr int kFirstTag = wire::ColumnsOf<Tag>::kFirst;
  static constexpr int kCount = wire::ColumnsOf<Tag>::kCount;

  Column columns[kCount];
  uint32_t rows = 0;
  uint64_t previous_time_ns = 0;

  Column& operator[](Tag tag) noexcept { return columns[static_cast<int>(tag) - kFirstTag]; }

  char* Carve(char* memory) noexcept {
    for (Column& column : columns) {
      column.begin = column.end = memory;
      memory += kColumnBytes;
    }
    return memory;
  }

  void Clear(uint64_t base_ns) noexcept {
    for (Column& column : columns) column.Clear();
    rows = 0;
    previous_time_ns = base_ns;
  }

  // Start relative to the previous end, and the duration.
  void PutInterval(Tag start, Tag duration, uint64_t start_ns, uint64_t end_ns) noexcept {
    (*this)[start].PutSigned(static_cast<int64_t>(start_ns - previous_time_ns));
    (*this)[duration].Put(end_ns - start_ns);
    previous_time_ns = end_ns;
  }
  // A point in time relative to the previous one.
  void PutTime(Tag time, uint64_t time_ns) noexcept {
    (*this)[time].PutSigned(static_cast<int64_t>(time_ns - previous_time_ns));
    previous_time_ns = time_ns;
  }

  size_t MaxEncodedBytes() const noexcept {
    size_t bytes = kFieldOverhead;
    for (const Column& column : columns) bytes += column.size() + kFieldOverhead;
    return bytes;
  }

  void Encode(WireWriter& message) const noexcept {
    for (int i = 0; i < kCount; ++i) {
      const Column& column = columns[i];
      if (column.any != 0) {
        message.add_bytes(static_cast<protozero::pbf_tag_type>(i + kFirstTag), column.begin, column.size());
      }
    }
  }
};

}  // namespace gpuprobe::injector
