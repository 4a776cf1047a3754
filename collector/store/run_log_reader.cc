#include "collector/store/run_log_reader.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/store/read_progress.h"
#include "collector/store/run_log_label.h"
#include "proto/limits.h"

namespace gpuprobe::store {

namespace {

constexpr size_t kFirstBytes = size_t{32} << 10;  // more than most chunks have
constexpr char kShrunk[] = "became shorter while it was read";

bool IsCutOff(size_t zstd_result) { return ZSTD_getErrorCode(zstd_result) == ZSTD_error_srcSize_wrong; }

}  // namespace

RunLogReader::RunLogReader(std::string name, std::string_view bytes)
    : name_(std::move(name)), bytes_(bytes) {}

RunLogReader::RunLogReader(std::string name, const MappedFile& file) : name_(std::move(name)), file_(&file) {}

Damage RunLogReader::DamageHere(std::string what) const {
  const double after_s = last_ns_ > first_ns_ ? static_cast<double>(last_ns_ - first_ns_) / 1e9 : 0;
  return {.file = name_, .byte = chunk_begin_, .what = std::move(what), .after_s = after_s};
}

bool RunLogReader::Fail(std::string what) {
  damage_ = DamageHere(file_ != nullptr && file_->Shrunk() ? kShrunk : std::move(what));
  return false;
}

void RunLogReader::GoOn(const MappedFile& file) {
  file_ = &file;
  if (chunk_begin_ == chunk_end_) damage_.reset();  // else a whole chunk held what cannot be read
}

void RunLogReader::Rest() {
  if (decoder_.buffered() == 0) decoder_.Take().IgnoreError();
}

size_t RunLogReader::FileBytes() const { return file_ != nullptr ? file_->size() : bytes_.size(); }

std::string_view RunLogReader::BytesAt(size_t offset, size_t likely, std::string& copied) const {
  if (file_ == nullptr) return bytes_.substr(offset);
  const size_t most = ZSTD_compressBound(kMaxChunkBytes);
  for (size_t size = std::clamp(likely, kFirstBytes, most);; size = std::min(4 * size, most)) {
    copied = file_->Read(offset, size);
    const bool whole = copied.size() < size || size == most;
    if (whole || !IsCutOff(ZSTD_findFrameCompressedSize(copied.data(), copied.size()))) return copied;
  }
}

bool RunLogReader::LoadChunk() {
  chunk_begin_ = chunk_end_;
  if (chunk_begin_ == FileBytes()) return saw_header_ ? false : Fail("empty file");
  std::string copied;
  size_t begin = chunk_begin_;
  std::string_view rest = BytesAt(begin, kFirstBytes, copied);
  const std::optional<uint64_t> apart = ReadLabel(rest);
  if (apart.has_value()) {
    begin += kLabelBytes;
    if (*apart > FileBytes() - begin) return Fail("cut off");
    if (passes_over_) {
      chunk_end_ = begin + *apart;
      NoteRead(chunk_end_ - chunk_begin_);
      return true;
    }
    rest = BytesAt(begin, *apart, copied);
  }
  const size_t size = ZSTD_findFrameCompressedSize(rest.data(), rest.size());
  if (ZSTD_isError(size) != 0) return Fail(IsCutOff(size) ? "cut off" : "bad chunk");
  if (apart.value_or(size) != size) return Fail("bad chunk size");
  std::string chunk;
  if (!Decompress(rest.substr(0, size), chunk)) return false;
  chunk_end_ = begin + size;
  NoteRead(chunk_end_ - chunk_begin_);
  decoder_.Append(chunk);
  return true;
}

bool RunLogReader::Decompress(std::string_view compressed, std::string& chunk) {
  const unsigned long long content = ZSTD_getFrameContentSize(compressed.data(), compressed.size());
  if (content == ZSTD_CONTENTSIZE_ERROR || content == ZSTD_CONTENTSIZE_UNKNOWN || content > kMaxChunkBytes)
    return Fail("bad chunk size");
  chunk.resize(content);
  const size_t got = ZSTD_decompress(chunk.data(), chunk.size(), compressed.data(), compressed.size());
  if (ZSTD_isError(got) != 0)
    return Fail(ZSTD_getErrorCode(got) == ZSTD_error_checksum_wrong ? "bad checksum" : "bad chunk");
  return got == content || Fail("bad chunk size");
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

}  // namespace gpuprobe::store
