// Reads a `.gpr` file frame by frame, up to its end or to the first damage, which it names.
//
// A chunk is returned only after its checksum was verified, so that everything read is what was written.
// Nothing a file claims is trusted: sizes are bounded before memory is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collector/framing/frame_decoder.h"
#include "collector/store/mapped_file.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::store {

struct Damage {
  std::string file;    // name without directory
  uint64_t byte = 0;   // of the file, where the unreadable chunk begins
  std::string what;    // "bad checksum", "cut off", ...
  double after_s = 0;  // of recorded time that could be read
  // The unreadable part is in the totals all the same: a later generation began with them.
  bool totals_whole = false;
};

class RunLogReader {
 public:
  // No chunk that we write is larger: a full chunk and one more frame.
  static constexpr size_t kMaxChunkBytes = size_t{64} << 20;

  // The file outlives the reader.
  RunLogReader(std::string name, const MappedFile& file);
  // `bytes` is a file's content and outlives the reader.
  RunLogReader(std::string name, std::string_view bytes);

  // The next frame into `frame`; false at the end or at damage. FileHeader frames are checked and skipped.
  // `raw` is valid until the next call.
  bool Next(v1::Frame& frame, std::string_view& raw);

  // Whether chunks that were written apart (RunLogWriter::AppendApart) are passed over, unread and unchecked.
  void PassOver(bool apart) { passes_over_ = apart; }
  // Nothing is read for now: frees what the last frame needed, if none is left behind it.
  void Rest();
  // The file has grown, as `file` shows: what was cut off at its end may be whole now.
  void GoOn(const MappedFile& file);

  const std::optional<Damage>& damage() const { return damage_; }
  // Damage that the caller found in the frame just read.
  Damage DamageHere(std::string what) const;
  // Clock of the last batch that was read, 0 before the first.
  uint64_t last_ns() const { return last_ns_; }
  // When the file was begun, as its header says; 0 before the first frame.
  uint64_t created_ns() const { return created_ns_; }
  const std::string& name() const { return name_; }

 private:
  bool LoadChunk();
  bool Decompress(std::string_view compressed, std::string& chunk);
  size_t FileBytes() const;
  // At least the whole chunk that begins at `offset`, if there is one; from a file by way of `copied`, where
  // `likely` bytes are read first.
  std::string_view BytesAt(size_t offset, size_t likely, std::string& copied) const;
  bool Fail(std::string what);

  std::string name_;
  const MappedFile* file_ = nullptr;  // or:
  std::string_view bytes_;
  size_t chunk_begin_ = 0;
  size_t chunk_end_ = 0;
  framing::FrameDecoder decoder_;
  bool passes_over_ = false;
  bool saw_header_ = false;
  uint64_t first_ns_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t created_ns_ = 0;
  std::optional<Damage> damage_;
};

}  // namespace gpuprobe::store
