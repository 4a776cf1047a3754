// The commands that the collector of `gpuprobe run` records: the one that it was started for and, under a
// launcher, those of the other ranks of this host, which join it.
//
// A command is known through the process that waits for it. If that process is killed, the command is watched
// from here. Must outlive the server that watches its descriptors.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "collector/cli/rank_meeting.h"
#include "collector/cli/run_channel.h"
#include "collector/ingest/server.h"

namespace gpuprobe::cli {

class RecordedCommands {
 public:
  // Gets the status of a command that has ended, as waitpid gave it.
  using NoteEnd = std::function<void(pid_t pid, int wait_status)>;

  // `ranks`: how others join, null: none can; `socket`: where their programs find us.
  RecordedCommands(RunChannel own, RankListener* ranks, std::string socket, NoteEnd note_end);
  ~RecordedCommands();
  RecordedCommands(const RecordedCommands&) = delete;
  RecordedCommands& operator=(const RecordedCommands&) = delete;

  absl::Status WatchOn(ingest::Server& server);
  // Waits until our own command is started. False: it never is.
  bool AwaitStart();
  // Call it after each Poll of the server.
  void Tick(ingest::Server& server);
  // All have ended, and no rank is expected any more.
  bool ended() const;
  // No command can join any more.
  void EndJoining(ingest::Server& server);

  void SayDirectory(const std::string& directory);
  // The user wants to leave: processes that the commands left behind are not waited for.
  bool hurried() const { return hurried_; }
  // No process waits to show the report: there are no other ranks, and the one that waited for our command is
  // gone.
  bool is_alone() const { return own().channel.gone() && ranks_ == nullptr; }
  // Of the command that failed first, as waitpid gives it.
  std::optional<int> failure() const { return failure_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Recorded {
    explicit Recorded(RunChannel to_waiter) : channel(std::move(to_waiter)) {}
    RunChannel channel;   // to the process that waits for the command
    bool joined = false;  // or ours
    bool ended = false;
    bool released = false;  // the process that waits for it need not wait for the report
    pid_t pid = -1;
    int pidfd = -1;
  };

  Recorded& own() { return commands_.front(); }
  const Recorded& own() const { return commands_.front(); }
  void Accept(ingest::Server& server);
  void OnMessages(Recorded& command);
  void OnMessage(Recorded& command, const RunMessage& message);
  static void LookIfAlone(Recorded& command);
  bool AnyRuns() const;

  std::list<Recorded> commands_;  // ours is the first
  RankListener* ranks_;
  std::string socket_;
  NoteEnd note_end_;
  Clock::time_point began_ = Clock::now();
  std::optional<int> failure_;
  bool hurried_ = false;
  bool said_directory_ = false;
};

}  // namespace gpuprobe::cli
