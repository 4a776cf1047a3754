// Many clients of one collector on one thread: a connection a rank, over the collector's Unix socket.
//
// Separate from the content sent. A send waits until the collector has taken it, as the probe's own thread
// would.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace gpuprobe::cli {

class Feed {
 public:
  explicit Feed(std::string socket) : socket_(std::move(socket)) {}
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  // Connects `clients` times; waits up to `patience` for the first one, as long as `alive`.
  absl::Status Connect(size_t clients, std::chrono::milliseconds patience,
                       const std::function<bool()>& alive);
  // Unavailable when the collector has closed this connection.
  absl::Status Send(size_t client, std::string_view bytes);
  // Nothing follows from this client.
  void Finish(size_t client);
  // Until the collector has read everything of every client that is finished.
  void AwaitRead();

 private:
  absl::Status ConnectOne(int* fd) const;

  std::string socket_;
  std::vector<int> fds_;
};

}  // namespace gpuprobe::cli
