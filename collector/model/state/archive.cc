#include "collector/model/state/archive.h"

#include <algorithm>

namespace gpuprobe::model {

// Where the next bytes go, of which there may be so many. Numbers are written there at once: appending each
// would take most of the time.
char* StateWriter::Room(size_t bytes) {
  constexpr size_t kLeast = 4096;
  if (bytes_.size() - size_ < bytes) bytes_.resize(std::max({kLeast, 2 * bytes_.size(), size_ + bytes}));
  return bytes_.data() + size_;
}

std::string StateWriter::Take() {
  bytes_.resize(std::exchange(size_, 0));
  return std::exchange(bytes_, {});
}

void StateWriter::PutNumber(uint64_t value) {
  constexpr size_t kMost = 10;
  char* const begin = Room(kMost);
  char* at = begin;
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<char>(value | 0x80);
  *at++ = static_cast<char>(value);
  size_ += static_cast<size_t>(at - begin);
}

void StateWriter::Text(const std::string& text) {
  PutNumber(text.size());
  text.copy(Room(text.size()), text.size());
  size_ += text.size();
}

void StateReader::Fail() {
  ok_ = false;
  rest_ = {};
}

uint64_t StateReader::GetNumber() {
  uint64_t value = 0;
  const size_t most = std::min<size_t>(rest_.size(), 10);
  for (size_t i = 0; i < most; ++i) {
    const auto byte = static_cast<uint8_t>(rest_[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte >= 0x80) continue;
    rest_.remove_prefix(i + 1);
    return value;
  }
  Fail();
  return 0;
}

size_t StateReader::Count(size_t) {
  const uint64_t count = GetNumber();
  if (count <= rest_.size()) return count;
  Fail();
  return 0;
}

void StateReader::Text(std::string& text) {
  const size_t size = Count();
  text.assign(rest_.substr(0, size));
  rest_.remove_prefix(size);
}

}  // namespace gpuprobe::model
