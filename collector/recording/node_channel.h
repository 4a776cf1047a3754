// The channel between the node's collector and the process of one user: connections go one way, counts and
// lines the other.
//
// A SOCK_SEQPACKET pair. The collector does not trust the other end: messages are bounded, and nothing is
// waited for. Either end sees when the other one is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace gpuprobe::recording::node {

// How far the user's process has come. All counts are since its start.
struct Progress {
  uint64_t taken = 0;  // connections that it received
  uint64_t ended = 0;  // of these, over
  uint64_t idle = 0;   // 1: no client is connected and every run is reported
};

class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}
  ~Channel();
  Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Channel& operator=(Channel&&) = delete;
  // Two ends that do not block.
  static absl::StatusOr<std::pair<Channel, Channel>> MakePair();

  int fd() const { return fd_; }
  // Gives up this copy of the descriptor without closing it.
  int Release() { return std::exchange(fd_, -1); }

  // Passes a connection; the caller closes its own copy. False: the other end does not keep up, or is gone.
  bool PassConnection(int connection) const;
  // Nothing will be passed any more; the other end ends when it has finished.
  void EndPassing() const;
  // Takes the connections that were passed. False: no more will come.
  bool TakeConnections(const std::function<void(int connection)>& take) const;

  void SendProgress(const Progress& progress) const;
  // Cut to kLineBytes; lost if the other end does not keep up.
  void SendLine(std::string_view line) const;
  // At most `limit` messages. False: the other end is gone.
  bool Receive(size_t limit, const std::function<void(const Progress&)>& on_progress,
               const std::function<void(std::string_view line)>& on_line) const;

 private:
  int fd_;
};

}  // namespace gpuprobe::recording::node
