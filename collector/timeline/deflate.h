// Deflate compression with zlib: of whole blocks, and of a stream as a .gz file.
#pragma once

#include <zlib.h>

#include <string>
#include <string_view>

#include "collector/timeline/byte_sink.h"

namespace gpuprobe::timeline {

// `bytes` in zlib's format.
std::string Deflate(std::string_view bytes);

// Compresses into `out`, which outlives it. Finish before the end.
class GzipSink : public ByteSink {
 public:
  explicit GzipSink(ByteSink& out);
  ~GzipSink() override;
  GzipSink(const GzipSink&) = delete;
  GzipSink& operator=(const GzipSink&) = delete;

  void Write(std::string_view bytes) override { Run(bytes, Z_NO_FLUSH); }
  uint64_t written() const override { return out_.written(); }
  void Finish() { Run({}, Z_FINISH); }

 private:
  void Run(std::string_view bytes, int flush);

  ByteSink& out_;
  z_stream stream_{};
};

}  // namespace gpuprobe::timeline
