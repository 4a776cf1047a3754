#include "collector/framing/frame_decoder.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "proto/limits.h"

namespace gpuprobe::framing {

void FrameDecoder::Append(std::string_view bytes) {
  if (position_ > 0 && (position_ == buffer_.size() || position_ >= buffer_.size() / 2)) {
    buffer_.erase(0, position_);
    position_ = 0;
  }
  buffer_.append(bytes);
}

absl::StatusOr<FrameDecoder::Next> FrameDecoder::Take() {
  constexpr int kMaxVarintBytes = 10;
  // A burst leaves no room behind: there may be a thousand of these.
  constexpr size_t kWorthKeeping = size_t{4} << 10;
  if (position_ == buffer_.size() && buffer_.capacity() > kWorthKeeping) {
    std::string().swap(buffer_);
    position_ = 0;
  }
  uint64_t length = 0;
  size_t at = position_;
  for (int i = 0;; ++i, ++at) {
    if (i == kMaxVarintBytes) return absl::InvalidArgumentError("a frame's length does not end");
    if (at == buffer_.size()) return Next{};
    const auto byte = static_cast<uint8_t>(buffer_[at]);
    if (i < 9) length |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (length > wire::kMaxFrameBytes || (i == 9 && (byte & 0x7f) != 0)) {
      return absl::InvalidArgumentError(absl::StrCat("a frame claims more than the ", wire::kMaxFrameBytes,
                                                     " bytes that a frame may have"));
    }
    if ((byte & 0x80) == 0) break;
  }
  ++at;
  if (buffer_.size() - at < length) return Next{};
  const std::string_view frame(buffer_.data() + at, length);
  position_ = at + length;
  return Next{.has_frame = true, .frame = frame};
}

void AppendDelimited(std::string_view frame, std::string& out) {
  uint64_t length = frame.size();
  while (length >= 0x80) {
    out.push_back(static_cast<char>((length & 0x7f) | 0x80));
    length >>= 7;
  }
  out.push_back(static_cast<char>(length));
  out.append(frame);
}

}  // namespace gpuprobe::framing
