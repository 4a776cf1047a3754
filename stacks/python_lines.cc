#include "stacks/python_lines.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace gpuprobe::stacks {
namespace {

// A function of 100,000 lines has a table of about this size.
constexpr uint64_t kMostBytes = uint64_t{1} << 20;

class Bytes {
 public:
  Bytes(const ProcessMemory& memory, uint64_t address, uint64_t size)
      : memory_(memory), address_(address), left_(size > kMostBytes ? 0 : size) {}

  std::optional<uint8_t> Next() {
    if (at_ == filled_) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(left_, sizeof buffer_));
      if (size == 0 || !memory_.Read(address_, buffer_, size)) return std::nullopt;
      address_ += size;
      left_ -= size;
      filled_ = size;
      at_ = 0;
    }
    return buffer_[at_++];
  }

 private:
  const ProcessMemory& memory_;
  uint64_t address_;
  uint64_t left_;
  size_t filled_ = 0;
  size_t at_ = 0;
  uint8_t buffer_[512];
};

// Pairs of steps: bytes of code (0 to 255), lines (-128 to 127). A line holds from where its step was made.
int32_t FindInPairs(Bytes bytes, int64_t offset, int32_t line) {
  int64_t begin = 0;
  while (const auto code = bytes.Next()) {
    const auto lines = bytes.Next();
    if (!lines) break;
    begin += *code;
    if (begin > offset) break;
    line += static_cast<int8_t>(*lines);
  }
  return line;
}

// Pairs again, but a line holds for the bytes of code in its own pair, and -128 is "no line".
int32_t FindInRanges(Bytes bytes, int64_t offset, int32_t line) {
  int64_t end = 0;
  while (const auto code = bytes.Next()) {
    const auto lines = bytes.Next();
    if (!lines) break;
    const bool none = static_cast<int8_t>(*lines) == -128;
    if (!none) line += static_cast<int8_t>(*lines);
    end += *code;
    if (end > offset) return none ? 0 : line;
  }
  return 0;
}

// Six bits at a time, the lowest first; the sign is the lowest bit of all.
std::optional<int32_t> TakeSigned(Bytes& bytes) {
  uint32_t value = 0;
  for (int shift = 0; shift < 30; shift += 6) {
    const auto byte = bytes.Next();
    if (!byte) return std::nullopt;
    value |= static_cast<uint32_t>(*byte & 63) << shift;
    if ((*byte & 64) == 0) break;
  }
  const auto size = static_cast<int32_t>(value >> 1);
  return (value & 1) != 0 ? -size : size;
}

// Entries begin with a byte whose highest bit is set: 4 bits of form, 3 of (code units of 2 bytes) - 1.
int32_t FindInLocations(Bytes bytes, int64_t offset, int32_t line) {
  int64_t end = 0;
  auto byte = bytes.Next();
  while (byte) {
    const int form = (*byte >> 3) & 15;
    end += int64_t{(*byte & 7) + 1} * 2;
    if (form == 13 || form == 14) {
      const auto lines = TakeSigned(bytes);
      if (!lines) return 0;
      line += *lines;
    } else if (form >= 10 && form <= 12) {
      line += form - 10;
    }
    if (end > offset) return form == 15 ? 0 : line;
    do {
      byte = bytes.Next();
    } while (byte && (*byte & 128) == 0);
  }
  return 0;
}

}  // namespace

int32_t FindLine(const ProcessMemory& memory, LineTable kind, uint64_t table, uint64_t size, int64_t offset,
                 int32_t first_line) {
  if (offset < 0) return first_line;
  const Bytes bytes(memory, table, size);
  int32_t line = 0;
  switch (kind) {
    case LineTable::kPairs:
      line = FindInPairs(bytes, offset, first_line);
      break;
    case LineTable::kRanges:
      line = FindInRanges(bytes, offset, first_line);
      break;
    case LineTable::kLocations:
      line = FindInLocations(bytes, offset, first_line);
      break;
  }
  return line > 0 ? line : 0;
}

}  // namespace gpuprobe::stacks
