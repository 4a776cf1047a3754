#include "collector/timeline/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gpuprobe::timeline {
namespace {

constexpr uint8_t kFirstContinuation = 0x80;
constexpr uint8_t kLastContinuation = 0xbf;

// Length of the valid sequence at the beginning of `text`, 0 if there is none. (Unicode 15, table 3-7)
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < kFirstContinuation) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : kFirstContinuation;
  const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : kLastContinuation;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < kFirstContinuation || byte(i) > kLastContinuation) return 0;
  }
  return length;
}

}  // namespace

std::string ToUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace gpuprobe::timeline
