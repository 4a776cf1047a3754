#include "collector/store/run_log_writer.h"

#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collector/framing/frame_decoder.h"
#include "collector/store/run_log_label.h"
#include "gpuprobe/v1/wire.pb.h"
#include "proto/limits.h"

namespace gpuprobe::store {
namespace {

// The compression state, one per thread: a zstd context takes up to 1.5 MiB, and there is a log for every
// rank.
class Compressor {
 public:
  Compressor() : context_(ZSTD_createCCtx()) { ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1); }
  ~Compressor() { ZSTD_freeCCtx(context_); }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // Valid until the next call.
  absl::StatusOr<std::string_view> Compress(std::string_view bytes, int level) {
    ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
    out_.resize(ZSTD_compressBound(bytes.size()));
    const size_t size = ZSTD_compress2(context_, out_.data(), out_.size(), bytes.data(), bytes.size());
    if (ZSTD_isError(size) != 0) return absl::InternalError(ZSTD_getErrorName(size));
    return std::string_view(out_.data(), size);
  }

 private:
  ZSTD_CCtx* context_;
  std::string out_;
};

// Compresses columnar batches to about a half at several hundred MB/s.
constexpr int kFast = 1;
// A tenth smaller, at 15 to 30 MB/s.
constexpr int kSmall = 13;

Compressor& ThreadsCompressor() {
  thread_local Compressor compressor;
  return compressor;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunLogWriter>> RunLogWriter::Create(const Directory& directory,
                                                                   const std::string& name,
                                                                   std::string_view version,
                                                                   uint64_t created_ns) {
  const absl::StatusOr<int> fd = directory.CreateFile(name);
  if (!fd.ok()) return fd.status();
  std::unique_ptr<RunLogWriter> writer(new RunLogWriter(absl::StrCat(directory.path(), "/", name), *fd));
  v1::Frame frame;
  v1::FileHeader* header = frame.mutable_file_header();
  header->set_protocol_major(wire::kProtocolMajor);
  header->set_protocol_minor(wire::kProtocolMinor);
  header->set_collector_version(std::string(version));
  header->set_created_ns(created_ns);
  // Age counts on the clock that Append is given, from 0: the first frame is written at once, so that a
  // process is on disk as soon as it has reported.
  if (absl::Status s = writer->Append(frame.SerializeAsString(), 0); !s.ok()) return s;
  return writer;
}

absl::StatusOr<std::unique_ptr<RunLogWriter>> RunLogWriter::Continue(const Directory& directory,
                                                                     const std::string& name) {
  const absl::StatusOr<int> fd = directory.ContinueFile(name);
  if (!fd.ok()) return fd.status();
  std::unique_ptr<RunLogWriter> writer(new RunLogWriter(absl::StrCat(directory.path(), "/", name), *fd));
  writer->good_bytes_ = directory.FileBytes(name);
  return writer;
}

RunLogWriter::RunLogWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

RunLogWriter::~RunLogWriter() {
  (void)Flush();  // callers that need the error have called Flush before
  close(fd_);
}

absl::Status RunLogWriter::Append(std::string_view frame, uint64_t now_ns) {
  if (stopped_) {
    ++unrecorded_frames_;
    return absl::OkStatus();
  }
  if (chunk_.empty()) chunk_opened_ns_ = now_ns;
  framing::AppendDelimited(frame, chunk_);
  ++chunk_frames_;
  return chunk_.size() >= kChunkBytes ? Flush() : FlushIfDue(now_ns);
}

absl::Status RunLogWriter::FlushIfDue(uint64_t now_ns) {
  if (chunk_.empty() || now_ns < chunk_opened_ns_ + kMaxAgeNs) return absl::OkStatus();
  return Flush();
}

absl::Status RunLogWriter::AppendApart(std::string_view frame) {
  absl::Status status = Flush();
  if (stopped_) {
    ++unrecorded_frames_;
    return status;
  }
  std::string chunk;
  framing::AppendDelimited(frame, chunk);
  return WriteChunk(chunk, 1, true);
}

absl::Status RunLogWriter::WriteChunk(std::string_view chunk, uint64_t frames, bool apart) {
  const absl::StatusOr<std::string_view> compressed =
      ThreadsCompressor().Compress(chunk, small_ && !apart ? kSmall : kFast);
  absl::Status status = compressed.status();
  uint64_t bytes = 0;
  if (status.ok() && apart) {
    const std::string label = LabelOf(compressed->size());
    bytes = label.size();
    status = Write(label);
  }
  if (status.ok()) status = Write(*compressed);
  if (status.ok()) {
    good_bytes_ += bytes + compressed->size();
    return status;
  }
  stopped_ = true;
  unrecorded_frames_ += frames;
  if (ftruncate(fd_, static_cast<off_t>(good_bytes_)) != 0)
    status = absl::UnavailableError(absl::StrCat(status.message(), "; its last chunk is incomplete"));
  return status;
}

absl::Status RunLogWriter::Flush() {
  if (chunk_.empty()) return absl::OkStatus();
  absl::Status status = WriteChunk(chunk_, chunk_frames_, false);
  chunk_.clear();
  if (chunk_.capacity() > kChunkBytes / 4) chunk_.shrink_to_fit();  // a quiet rank's chunk is small
  chunk_frames_ = 0;
  return status;
}

absl::Status RunLogWriter::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::store
