// Extracts frames from a byte stream: a varint length before each, nothing trusted.
//
// Separate from sockets so that it can be tested and fuzzed alone; the run log reads its chunks with it too.
// A length above wire::kMaxFrameBytes or a varint that does not end is refused as soon as it is seen, before
// anything is allocated for it; memory grows with what has arrived, and never beyond the frame that is
// claimed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/limits.h"

namespace gpuprobe::framing {

class FrameDecoder {
 public:
  void Append(std::string_view bytes);
  // Frames that claim more are refused; wire::kMaxFrameBytes at most, and at first.
  void SetLargestFrame(size_t bytes) { largest_frame_ = std::min(bytes, wire::kMaxFrameBytes); }

  // The next whole frame (without its length), valid until the next call; `has_frame` is false if there is
  // none.
  struct Next {
    bool has_frame = false;
    std::string_view frame;
  };
  // InvalidArgument when the stream cannot be frames; it stays so.
  absl::StatusOr<Next> Take();

  // Bytes that arrived and have not been taken.
  size_t buffered() const { return buffer_.size() - position_; }
  // Memory that holds them, which may have been needed for more.
  size_t held() const { return buffer_.capacity(); }
  // Releases memory that it does not need.
  void Shrink();

 private:
  void EraseTaken();

  std::vector<char> buffer_;  // not a string, which takes twice as much as it is asked to reserve
  size_t position_ = 0;
  size_t awaited_ = 0;  // bytes from position_ on that the frame takes there, if that is known
  size_t largest_frame_ = wire::kMaxFrameBytes;
};

// Appends `frame` with its length in front.
void AppendDelimited(std::string_view frame, std::string& out);

}  // namespace gpuprobe::framing
