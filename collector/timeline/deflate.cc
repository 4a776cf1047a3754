#include "collector/timeline/deflate.h"

#include <array>
#include <new>

namespace gpuprobe::timeline {
namespace {

// Traces repeat themselves so much that the fastest level already makes a tenth of them.
constexpr int kLevel = 1;
constexpr int kGzipWindow = 15 + 16;  // the largest window, and gzip's header
constexpr int kMemory = 8;            // zlib's default

unsigned char* Unsigned(const char* bytes) {
  return reinterpret_cast<unsigned char*>(const_cast<char*>(bytes));
}

}  // namespace

std::string Deflate(std::string_view bytes) {
  uLongf size = compressBound(static_cast<uLong>(bytes.size()));
  std::string out(size, '\0');
  const int result = compress2(Unsigned(out.data()), &size, Unsigned(bytes.data()),
                               static_cast<uLong>(bytes.size()), kLevel);
  if (result != Z_OK) throw std::bad_alloc();  // there is no other reason
  out.resize(size);
  return out;
}

GzipSink::GzipSink(ByteSink& out) : out_(out) {
  if (deflateInit2(&stream_, kLevel, Z_DEFLATED, kGzipWindow, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
}

GzipSink::~GzipSink() { deflateEnd(&stream_); }

void GzipSink::Run(std::string_view bytes, int flush) {
  std::array<char, 65536> buffer;
  stream_.next_in = Unsigned(bytes.data());
  stream_.avail_in = static_cast<uInt>(bytes.size());
  do {
    stream_.next_out = Unsigned(buffer.data());
    stream_.avail_out = buffer.size();
    deflate(&stream_, flush);
    out_.Write({buffer.data(), buffer.size() - stream_.avail_out});
  } while (stream_.avail_out == 0);
}

}  // namespace gpuprobe::timeline
