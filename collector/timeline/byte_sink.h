// Where an encoded timeline goes: a file, or a compressor in front of one.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuprobe::timeline {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void Write(std::string_view bytes) = 0;
  // So far, as they reach the file.
  virtual uint64_t written() const = 0;
};

}  // namespace gpuprobe::timeline
