// Rows that wait for the server, in rounds, as files of a directory that is the spool's own.
//
//   000000000012-5f0c9a.round      rows of all tables that came within a second, and from where their jobs go
//   on 20261128T101500Z-train.steps   from where a job goes on whose rounds the server has
//
// A round is there whole or not at all. It says itself what its columns are, and its name is the token by
// which a server knows a repeated insert. Whoever begins again, even as a newer release, finds what is to be
// sent and from where each job goes on, in one piece: no row is lost or written twice when a hub is killed.
// Written, not synchronised: rounds survive the hub's death, not the machine's. Bounded: beyond the limit the
// oldest go. Used from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/clickhouse/batch.h"
#include "collector/store/directory.h"
#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::clickhouse {

// From where rows go on; by the name of the job's directory and the part of its rows. Empty: the job is over.
using States = std::map<std::pair<std::string, std::string>, std::string>;

class Spool {
 public:
  struct Entry {
    std::string name;
    uint64_t bytes = 0;
    uint64_t rows = 0;  // 0 if it is damaged, too
  };
  using Lost = absl::FunctionRef<void(const std::string& table, uint64_t rows)>;

  // FailedPrecondition while another hub has it.
  static absl::StatusOr<Spool> Open(const std::string& directory, uint64_t most_bytes);

  // `lost` is called for what has to go to make room.
  absl::Status Add(const Batch& batch, const States& states, Lost lost);
  // Oldest first.
  const std::deque<Entry>& entries() const { return entries_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t rows() const { return rows_; }
  // DataLoss if it is damaged.
  absl::StatusOr<v1::RowRound> Read(const Entry& entry) const;
  // The server has it. REQUIRES: it is the oldest.
  void RemoveOldest();
  // Keeps a section aside that the server will never take. The name of its file.
  std::string SetAside(const Entry& entry, const v1::RowSection& section) const;

  // As they were found; none of jobs that are over.
  const States& found() const { return found_; }
  const std::string& path() const { return directory_.path(); }

 private:
  Spool(store::Directory directory, uint64_t most_bytes);
  void KeepStates(const v1::RowRound& round);

  store::Directory directory_;
  uint64_t most_bytes_;
  std::string instance_;
  uint64_t next_ = 1;
  uint64_t bytes_ = 0;
  uint64_t rows_ = 0;
  std::deque<Entry> entries_;
  States found_;
};

}  // namespace gpuprobe::clickhouse
