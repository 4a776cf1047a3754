#include "collector/model/state/archive.h"

#include <algorithm>

namespace gpuprobe::model {

void StateWriter::PutNumber(uint64_t value) {
  char digits[10];
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) digits[size++] = static_cast<char>(value | 0x80);
  digits[size++] = static_cast<char>(value);
  bytes_.append(digits, size);
}

void StateWriter::Put(const std::string& text) {
  PutNumber(text.size());
  bytes_ += text;
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

size_t StateReader::GetCount() {
  const uint64_t count = GetNumber();
  if (count <= rest_.size()) return count;
  Fail();
  return 0;
}

void StateReader::Get(std::string& text) {
  const size_t size = GetCount();
  text.assign(rest_.substr(0, size));
  rest_.remove_prefix(size);
}

}  // namespace gpuprobe::model
