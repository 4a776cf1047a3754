// The runs of all users of a node, each in a directory of its own that only its user can read.
//
// Separate from Recorder, which records one run: this says which run a client belongs to, when a run is over,
// and whose it is then. Clients of one user and job (the launcher's run id) share a run, from the first
// client until `kGoneWait` after the last. A run is written under DIR/.recording, where only the collector's
// user may look, and moved to DIR/<user>/ and given to its user when its report is written; from then on the
// collector touches nothing in it. Used from the server's thread only. Must outlive the server.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "collector/cli/recorder.h"
#include "collector/ingest/session.h"

namespace gpuprobe::cli {

class NodeRecorder {
 public:
  // Ranks of a job may come a little later, or leave and come back.
  static constexpr std::chrono::milliseconds kGoneWait{2000};
  // One user's runs at a time; more would let him fill the collector.
  static constexpr size_t kMaxRunsOfUser = 64;

  // One line about a run that has ended, or a hang's lines.
  using Say = std::function<void(const std::string& line)>;
  // Of every run.
  struct Options {
    KeepOption keep;
    RankOptions ranks;
    StepMarkerOption marker;
  };
  // Makes `directory` and what it needs inside. FailedPrecondition when something else is there.
  static absl::StatusOr<std::unique_ptr<NodeRecorder>> Create(const std::string& directory,
                                                              const Options& options, Say say);

  // ResourceExhausted beyond kMaxRunsOfUser.
  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(uid_t user, const v1::Hello& hello,
                                                          std::string_view raw);
  // Writes what has waited long enough and concludes the runs that are over; call a few times a second.
  void Tick();
  // Concludes every run. No sink may be used after it.
  void Finish();

  size_t concluded() const { return concluded_; }

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<uid_t, std::string>;  // user, job
  struct Run {
    std::unique_ptr<Recorder> recorder;
    std::string name;  // of its directory
    size_t clients = 0;
    Clock::time_point last_left;
  };
  class Sink;

  NodeRecorder(std::string directory, Options options, Say say)
      : directory_(std::move(directory)), options_(std::move(options)), say_(std::move(say)) {}
  absl::StatusOr<Run*> Join(uid_t user, const v1::Hello& hello);
  void Conclude(const Key& key, Run& run);

  std::string directory_;
  Options options_;
  Say say_;
  std::map<Key, Run> runs_;
  size_t concluded_ = 0;
};

}  // namespace gpuprobe::cli
