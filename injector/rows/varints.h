// Writes varints into a column: one value, or a block of values at once.
//
// This is most of the cost of encoding. Thread: any. Allocation: none. Failure: none; the caller provides ten
// bytes of room per value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "injector/rows/wire_writer.h"

namespace gpuprobe::injector {

// Writes `value` at `at` and returns the place behind it. Bytes behind that place may be overwritten. Below
// 128 with a branch, because most columns hold nothing else and it is predicted; from there to 28 bits, where
// durations and gaps are, without one on the length: they alternate between two and three bytes, and a
// mispredicted branch costs more than the whole value.
inline char* WriteVarint(char* at, uint64_t value) noexcept {
  if (value < 0x80) {
    *at = static_cast<char>(value);
    return at + 1;
  }
  if (value >> 28 != 0) return at + protozero::add_varint_to_buffer(at, value);
  const auto bits = static_cast<uint32_t>(value);
  uint32_t groups = (bits & 0x0000'3fff) | ((bits & 0x0fff'c000) << 2);
  groups = (groups & 0x007f'007f) | ((groups & 0x3f80'3f80) << 1);
  const int more = static_cast<int>(bits >> 14 != 0) + static_cast<int>(bits >> 21 != 0);  // than two bytes
  groups |= 0x0080'8080u >> (16 - 8 * more);
  std::memcpy(at, &groups, sizeof(groups));
  return at + 2 + more;
}

inline constexpr uint32_t kVarintBlock = 64;

// A block of values below 2^28: the usual case of every column.
struct VarintBlock {
  // The compiler's vectors: SSE2 on every x86-64 processor.
  typedef uint32_t Lanes __attribute__((vector_size(16)));
  static constexpr uint32_t kLanes = 4;

  alignas(16) uint32_t values[kVarintBlock];

  // `any` is the bitwise or of the values. Reads up to the next multiple of four values, so that these have
  // to be initialised.
  char* Write(char* at, uint32_t count, uint32_t any) const noexcept {
    if (any < 0x80) {
      for (uint32_t i = 0; i < count; ++i) at[i] = static_cast<char>(values[i]);
      return at + count;
    }
    uint32_t done = 0;
    for (; done + kLanes <= count; done += kLanes) at = WriteLanes(at, done, kLanes);
    return done == count ? at : WriteLanes(at, done, count - done);
  }

 private:
  typedef int32_t SignedLanes __attribute__((vector_size(16)));

  char* WriteLanes(char* at, uint32_t first, uint32_t count) const noexcept {
    Lanes v;
    std::memcpy(&v, values + first, sizeof(v));
    // Seven bits a byte; the bits that say that more bytes follow; the length. A comparison is all ones.
    Lanes groups = (v & 0x0000'3fff) | ((v & 0x0fff'c000) << 2);
    groups = (groups & 0x007f'007f) | ((groups & 0x3f80'3f80) << 1);
    const auto compared = reinterpret_cast<SignedLanes>(v);
    const auto two = reinterpret_cast<Lanes>(compared > 0x7f);
    const auto three = reinterpret_cast<Lanes>(compared > 0x3fff);
    const auto four = reinterpret_cast<Lanes>(compared > 0x1f'ffff);
    groups |= (two & 0x80) | (three & 0x8000) | (four & 0x80'0000);
    const Lanes lengths = 1 - two - three - four;
    for (uint32_t lane = 0; lane < count; ++lane) {
      const uint32_t bytes = groups[lane];
      std::memcpy(at, &bytes, sizeof(bytes));
      at += lengths[lane];
    }
    return at;
  }
};

}  // namespace gpuprobe::injector
