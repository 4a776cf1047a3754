// The hub of one job, on one of its hosts: writes what the other hosts post into folders of their own beside
// this host's, as if all hosts recorded into one directory that they share.
//
//   gpuprobe-runs/20261127T101500Z-train/n1/rank-0.gpr ...      recorded here
//   gpuprobe-runs/20261127T101500Z-train/n2/rank-8.gpr ...      posted by n2, whose files are the original
//
// A host's files are the queue: a host sends what is behind the sizes that the hub has, so that nothing is
// lost or written twice when posts are lost or repeated, or when either end begins again. Whoever posts must
// know the secret. Trusts nothing else: names, sizes and numbers are bounded, and files are never written
// outside the folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/hub/capture_board.h"
#include "collector/hub/endpoint.h"
#include "collector/store/directory.h"
#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::hub {

// In a run directory: the collector that records there, by a random number.
inline constexpr char kInstanceFile[] = "instance.txt";
// In a folder that a hub has made: whose files it has.
inline constexpr char kMirroredFile[] = "mirrored.txt";  // a second line has the address that sent them

class Hub : public Jobs {
 public:
  struct Options {
    std::string job;   // as the launcher tells all hosts
    std::string host;  // name of this one
    uint64_t most_bytes_of_host = uint64_t{4} << 30;
  };
  static constexpr size_t kMostHosts = CaptureBoard::kMostHosts;
  static constexpr size_t kMostFiles = 4096;  // of a host
  // Of one network address: a rank for each core may have a collector of its own.
  static constexpr size_t kMostOfAddress = 256;

  explicit Hub(Options options) : options_(std::move(options)) {}

  // Before this call, posts are refused, and their hosts try again. `folder`: the name of this host's own
  // folder in the directory; empty: it records nothing itself.
  void SetDirectory(const std::string& directory, const std::string& folder);

  // Folders of other hosts that have posted. Waits while one is written; how many there are does not.
  std::vector<std::string> folders() const;
  size_t others() const { return others_.load(); }
  // What is known of other hosts' processes, those included that record into this host's directory.
  CaptureBoard& captures() { return captures_; }
  bool Has(const std::string& job) override { return job == options_.job; }
  Taken Take(const v1::HubPost& post, const Sender& from) override;

 private:
  struct Host {
    store::Directory directory;
    std::string folder;
    std::string from;  // its address
    uint64_t sequence = 0;
    uint64_t bytes = 0;
    std::map<std::string, uint64_t> files;  // their sizes
  };

  // The host that posts, or why it cannot; null: its own files are in the directory already.
  absl::StatusOr<Host*> HostOf(const v1::HubPost& post, const std::string& from);
  absl::Status Write(Host& host, const v1::FilePart& part);

  const Options options_;
  std::atomic<size_t> others_ = 0;
  CaptureBoard captures_;
  mutable std::mutex mutex_;
  std::string directory_;        // under the mutex, as all that follows; empty: not known yet
  std::string shown_directory_;  // absolute
  std::string own_folder_;
  std::map<uint64_t, Host> hosts_;  // by instance
};

}  // namespace gpuprobe::hub
