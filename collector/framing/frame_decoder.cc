#include "collector/framing/frame_decoder.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace gpuprobe::framing {

namespace {

// A decoder that holds nothing keeps no more than this: there may be a thousand.
constexpr size_t kWorthKeeping = size_t{4} << 10;
// Whoever takes the spare room holds it: nobody may make it large for others.
constexpr size_t kLargestSpare = size_t{512} << 10;

// Room for a burst that no decoder of this thread uses: they take turns with it.
std::vector<char>& SpareRoom() {
  static thread_local std::vector<char> spare;
  return spare;
}

}  // namespace

void FrameDecoder::Append(std::string_view bytes) {
  if (position_ > 0 && (position_ == buffer_.size() || position_ >= buffer_.size() / 2)) {
    EraseTaken();
  }
  if (buffer_.empty() && bytes.size() > buffer_.capacity()) buffer_.swap(SpareRoom());
  const size_t needed = buffer_.size() + bytes.size();
  if (needed > buffer_.capacity()) {
    const size_t ahead = 2 * buffer_.capacity();
    buffer_.reserve(std::max(needed, awaited_ == 0 ? ahead : std::min(ahead, position_ + awaited_)));
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void FrameDecoder::EraseTaken() {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(position_));
  position_ = 0;
}

void FrameDecoder::Shrink() {
  EraseTaken();
  buffer_.shrink_to_fit();
}

absl::StatusOr<FrameDecoder::Next> FrameDecoder::Take() {
  constexpr int kMaxVarintBytes = 10;
  if (position_ == buffer_.size() && buffer_.capacity() > kWorthKeeping) {
    position_ = 0;
    buffer_.clear();
    if (buffer_.capacity() > SpareRoom().capacity() && buffer_.capacity() <= kLargestSpare)
      buffer_.swap(SpareRoom());
    std::vector<char>().swap(buffer_);
  }
  awaited_ = 0;
  uint64_t length = 0;
  size_t at = position_;
  for (int i = 0;; ++i, ++at) {
    if (i == kMaxVarintBytes) return absl::InvalidArgumentError("a frame's length does not end");
    if (at == buffer_.size()) return Next{};
    const auto byte = static_cast<uint8_t>(buffer_[at]);
    if (i < 9) length |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (length > largest_frame_ || (i == 9 && (byte & 0x7f) != 0)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a frame claims more than the ", largest_frame_, " bytes that a frame may have"));
    }
    if ((byte & 0x80) == 0) break;
  }
  ++at;
  if (buffer_.size() - at < length) {
    awaited_ = at - position_ + length;
    return Next{};
  }
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
