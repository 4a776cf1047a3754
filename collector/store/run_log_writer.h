// Writes one process's frames as they came into a `.gpr` file: zstd frames with checksums, each holding whole
// Frames.
//
// It runs beside ingest: appending costs a copy, and a chunk is compressed and written when it has
// kChunkBytes or is kMaxAge old. What few readers need stands in chunks of its own, behind a label
// (run_log_label.h). A collector that dies loses at most the open chunk. After a write error the
// file is truncated to its last good chunk, recording stops for good, unrecorded frames are counted, and
// ingest continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "collector/store/directory.h"

namespace gpuprobe::store {

class RunLogWriter {
 public:
  static constexpr size_t kChunkBytes = size_t{64} << 10;  // of each of a thousand ranks'
  static constexpr uint64_t kMaxAgeNs = 1'000'000'000;

  // The file must not exist. Writes the FileHeader.
  static absl::StatusOr<std::unique_ptr<RunLogWriter>> Create(const Directory& directory,
                                                              const std::string& name,
                                                              std::string_view version, uint64_t created_ns);
  // The file exists and ends with a whole chunk: goes on behind it.
  static absl::StatusOr<std::unique_ptr<RunLogWriter>> Continue(const Directory& directory,
                                                                const std::string& name);
  ~RunLogWriter();
  RunLogWriter(const RunLogWriter&) = delete;
  RunLogWriter& operator=(const RunLogWriter&) = delete;

  // From now on takes ten times as long for chunks that are a tenth smaller: for little that many hosts send.
  // What stands apart is written as fast as ever.
  void PreferSmall() { small_ = true; }
  // `frame` without its length. `now_ns` on any clock that ascends. The first failure is returned once; later
  // calls only count.
  absl::Status Append(std::string_view frame, uint64_t now_ns);
  // In a chunk of its own, which readers can pass over (RunLogReader::PassOver).
  absl::Status AppendApart(std::string_view frame);
  // Writes the open chunk if it is older than kMaxAgeNs.
  absl::Status FlushIfDue(uint64_t now_ns);
  absl::Status Flush();

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return good_bytes_; }
  uint64_t unrecorded_frames() const { return unrecorded_frames_; }
  // Nothing that was appended waits: it is in the file, or the disk has refused it for good.
  bool settled() const { return chunk_.empty(); }

 private:
  RunLogWriter(std::string path, int fd);
  // `chunk`: of so many frames. `apart`: behind a label.
  absl::Status WriteChunk(std::string_view chunk, uint64_t frames, bool apart);
  absl::Status Write(std::string_view bytes);

  std::string path_;
  int fd_;
  std::string chunk_;
  uint64_t chunk_frames_ = 0;
  uint64_t chunk_opened_ns_ = 0;
  uint64_t good_bytes_ = 0;
  bool small_ = false;
  bool stopped_ = false;
  uint64_t unrecorded_frames_ = 0;
};

}  // namespace gpuprobe::store
