#include "collector/store/run_log_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/limits.h"

namespace gpuprobe::store {

RunLogReader::RunLogReader(std::string name, std::string_view bytes)
    : name_(std::move(name)), bytes_(bytes) {}

Damage RunLogReader::DamageHere(std::string what) const {
  const double after_s = last_ns_ > first_ns_ ? static_cast<double>(last_ns_ - first_ns_) / 1e9 : 0;
  return {.file = name_, .byte = chunk_begin_, .what = std::move(what), .after_s = after_s};
}

bool RunLogReader::Fail(std::string what) {
  damage_ = DamageHere(std::move(what));
  return false;
}

bool RunLogReader::LoadChunk() {
  chunk_begin_ = chunk_end_;
  if (chunk_begin_ == bytes_.size()) return saw_header_ ? false : Fail("empty file");
  const std::string_view rest = bytes_.substr(chunk_begin_);
  const size_t size = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
  if (ZSTD_isError(size) != 0) {
    return Fail(ZSTD_getErrorCode(size) == ZSTD_error_srcSize_wrong ? "cut off" : "bad chunk");
  }
  const unsigned long long content = ZSTD_getFrameContentSize(rest.data(), size);
  if (content == ZSTD_CONTENTSIZE_ERROR || content == ZSTD_CONTENTSIZE_UNKNOWN || content > kMaxChunkBytes) {
    return Fail("bad chunk size");
  }
  chunk_.resize(content);
  const size_t got = ZSTD_decompress(chunk_.data(), chunk_.size(), rest.data(), size);
  if (ZSTD_isError(got) != 0) {
    return Fail(ZSTD_getErrorCode(got) == ZSTD_error_checksum_wrong ? "bad checksum" : "bad chunk");
  }
  if (got != content) return Fail("bad chunk size");
  chunk_end_ = chunk_begin_ + size;
  decoder_.Append(chunk_);
  return true;
}

bool RunLogReader::Next(v1::Frame& frame, std::string_view& raw) {
  while (!damage_.has_value()) {
    absl::StatusOr<framing::FrameDecoder::Next> next = decoder_.Take();
    if (!next.ok()) return Fail("bad frame");
    if (!next->has_frame) {
      if (decoder_.buffered() > 0) return Fail("incomplete frame");  // chunks hold whole frames
      if (!LoadChunk()) return false;
      continue;
    }
    if (!frame.ParseFromArray(next->frame.data(), static_cast<int>(next->frame.size())))
      return Fail("bad frame");
    if (frame.has_file_header()) {
      saw_header_ = true;
      created_ns_ = frame.file_header().created_ns();
      if (frame.file_header().protocol_major() == wire::kProtocolMajor) continue;
      return Fail(absl::StrCat("written as protocol ", frame.file_header().protocol_major(), ".",
                               frame.file_header().protocol_minor(), ", this program reads ",
                               wire::kProtocolMajor, ".x"));
    }
    if (!saw_header_) return Fail("no file header");
    if (frame.has_batch() && frame.batch().clock().realtime_ns() != 0) {
      last_ns_ = frame.batch().clock().realtime_ns();
      if (first_ns_ == 0) first_ns_ = last_ns_;
    } else if (frame.has_hello() && first_ns_ == 0) {
      first_ns_ = last_ns_ = frame.hello().clock().realtime_ns();
    }
    raw = next->frame;
    return true;
  }
  return false;
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a pipe that somebody put there would be waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a regular file"));
  }
  const auto size = static_cast<size_t>(st.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(error)));
    }
  }
  close(fd);
  return std::unique_ptr<MappedFile>(new MappedFile(data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace gpuprobe::store
