#include "collector/model/state/archive.h"

namespace gpuprobe::model {

void StateWriter::PutNumber(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
  bytes_.push_back(static_cast<char>(value));
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
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
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
