// Many clients of one collector on one thread: a connection a rank, over the collector's Unix socket.
//
// A send blocks until the collector has taken the bytes, as in the probe's own thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace gpuprobe::simulate {

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
  // This client sends nothing more.
  void Finish(size_t client);
  // Waits until the collector has read everything from every finished client.
  void AwaitRead();

 private:
  absl::Status ConnectOne(int* fd) const;

  std::string socket_;
  std::vector<int> fds_;
};

}  // namespace gpuprobe::simulate
