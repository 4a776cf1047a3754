// Messages between the two processes of `gpuprobe run`: the one that waits for the command, and the
// collector. The `gpuprobe run`s of other ranks that join a collector (rank_meeting.h) use the same ones.
//
// The user started the waiting process, which is the command's parent and must survive whatever happens to
// the collector: it sends without blocking, allocates nothing here, and treats every failure as the
// collector's end. Messages keep their boundaries (SOCK_SEQPACKET).
#pragma once

#include <climits>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

enum class RunMessageKind : int32_t {
  // From the collector.
  kReady,  // it listens: the command may start; for a rank that joins `text`: on this socket, `value`: its
           // pid
  kDirectory,  // `text`: where the run is recorded
  kRelease,    // to one whose command has ended: others run, so do not wait for the report
  // From the waiting process.
  kJoin,        // `value`: rank, `text`: job of a command that this collector did not start for
  kStarted,     // `value`: the command's pid
  kNotStarted,  // the command could not be executed
  kEnded,       // `value`: the command's status, as waitpid gives it
  kHurry,       // the user wants to leave: stop waiting
};

struct RunMessage {
  RunMessageKind kind = RunMessageKind::kReady;
  int32_t value = 0;
  char text[PATH_MAX] = "";
};

class RunChannel {
 public:
  // Both ends; the descriptors are not inherited by programs that are executed.
  struct Pair;
  static absl::StatusOr<Pair> Open();

  explicit RunChannel(int fd) : fd_(fd) {}
  RunChannel(RunChannel&& other) noexcept;
  RunChannel& operator=(RunChannel&&) = delete;
  ~RunChannel() { Close(); }

  int fd() const { return fd_; }
  void Close();
  // Never waits. A message that the other side cannot take is dropped.
  void Send(RunMessageKind kind, int32_t value = 0, std::string_view text = {}) const;
  // The next message, for which `wait` waits. False: there is none, or the other side has gone (gone()).
  bool Receive(RunMessage& message, bool wait);
  bool gone() const { return gone_; }

 private:
  int fd_;
  bool gone_ = false;
};

struct RunChannel::Pair {
  RunChannel waiting;
  RunChannel collector;
};

}  // namespace gpuprobe::cli
