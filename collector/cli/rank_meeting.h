// Where the `gpuprobe run`s that a launcher started on this host, one for each rank, find each other: the
// first records for all, the others join it.
//
//   $XDG_RUNTIME_DIR/gpuprobe/ or /tmp/gpuprobe-$UID/   0700, checked to be ours; locked while a rank looks
//   around
//     job-<hash of the job>-<random>/                   made and locked by the first, removed at its end
//       ranks.sock                                      ranks join here, as long as the first records
//       collector.sock                                  their programs send their records here
//
// Both sides ask the kernel which user the other belongs to. A folder without a lock has lost its owner, and
// is removed. A rank that has joined already (the command after this one, of the same script) is refused, and
// becomes the first of a run of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "collector/cli/launched_rank.h"
#include "collector/cli/run_channel.h"

namespace gpuprobe::cli {

// The first rank's end. The descriptors are not inherited by programs that are executed.
class RankListener {
 public:
  RankListener(LaunchedRank self, std::string folder, int folder_lock, int fd)
      : self_(std::move(self)), folder_(std::move(folder)), folder_lock_(folder_lock), fd_(fd) {
    here_.insert(self_.rank);
  }
  RankListener(RankListener&& other) noexcept;
  RankListener& operator=(RankListener&&) = delete;
  ~RankListener();

  const std::string& folder() const { return folder_; }
  int fd() const { return fd_; }
  // The next connection from a process of this user; pass its first message to Admit.
  std::optional<RunChannel> Accept() const;
  bool Admit(const RunMessage& join);
  // Whether the launcher started ranks on this host that have not joined.
  bool misses_ranks() const { return static_cast<size_t>(self_.ranks_here) > here_.size(); }
  // No rank can join any more.
  void End();
  // Call in the parent of the process that listens: closes the parent's copy of the descriptor.
  void CloseCopy();

 private:
  LaunchedRank self_;
  std::string folder_;
  int folder_lock_;
  int fd_;
  std::set<int32_t> here_;  // ranks that have joined
};

// The collector of another `gpuprobe run` that records for us.
struct JoinedCollector {
  RunChannel channel;
  pid_t pid;
  std::string socket;  // for the probe
};

struct RankMeeting {
  // At most one of the two.
  std::optional<RankListener> first;
  std::optional<JoinedCollector> joined;
};

// Joins the first rank of our job, or becomes it. An error if that cannot be known.
absl::StatusOr<RankMeeting> MeetRanks(const LaunchedRank& self);

}  // namespace gpuprobe::cli
