// Serves many clients on one thread: accepts, checks who they are, reads in turn, and ends a client that
// misbehaves.
//
// Separate from the session (rules) and the endpoint (place): this is the loop. Every client may have
// kBudgetBytes read in a round, so that one that sends fast does not keep others waiting; the kernel's socket
// buffer is the back pressure. Further file descriptors (signals, a child) take part through Watch. One
// thread; not thread-safe.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "collector/ingest/endpoint.h"
#include "collector/ingest/session.h"

namespace gpuprobe::ingest {

class Server {
 public:
  static constexpr size_t kBudgetBytes = size_t{1} << 20;
  static constexpr size_t kMaxClients = 16384;

  // Serves the user that runs it, and root.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& socket_path, SinkFactory make_sink);
  // Makes the sink for a client of this user, as the system says it.
  using UserSinkFactory = std::function<absl::StatusOr<std::unique_ptr<FrameSink>>(
      uid_t user, const v1::Hello&, std::string_view raw)>;
  // Serves every user of the node.
  static absl::StatusOr<std::unique_ptr<Server>> StartForNode(const std::string& socket_path,
                                                              UserSinkFactory make_sink);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Calls `on_readable` from Poll whenever `fd` is readable. The descriptor stays the caller's.
  absl::Status Watch(int fd, std::function<void()> on_readable);
  // Waits for at most `timeout` and handles what is there.
  void Poll(std::chrono::milliseconds timeout);
  // Tells every client that the collector ends in order, so that it does not look for another one.
  void SayEnded();
  // Takes everything that clients have sent: asks them to flush, then reads until all have gone or nothing
  // has come for `quiet`, at most `limit`.
  void Drain(std::chrono::milliseconds quiet, std::chrono::milliseconds limit);

  size_t clients() const { return clients_.size(); }
  uint64_t accepted() const { return accepted_; }
  // Clients that said Hello and were taken, ever.
  uint64_t greeted() const { return greeted_; }
  uint64_t dropped() const { return dropped_; }
  const std::string& socket_path() const { return endpoint_.path(); }

 private:
  struct Client {
    int fd = -1;
    SinkFactory make_sink;  // what the session refers to
    std::unique_ptr<Session> session;
    bool counted = false;
  };

  Server(Endpoint endpoint, Audience audience, UserSinkFactory make_sink, int epoll_fd);
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& socket_path, Audience audience,
                                                       UserSinkFactory make_sink);
  void Accept();
  void Serve(int fd, bool hung_up);
  void End(int fd);
  void AcknowledgeIfDue();
  void Drop(Client& client, const absl::Status& why, const std::string& reply);
  bool Admit(int fd, uid_t& user) const;

  Endpoint endpoint_;
  Audience audience_;
  UserSinkFactory make_sink_;
  int epoll_fd_;
  std::map<int, Client> clients_;
  std::map<int, std::function<void()>> watched_;
  uint64_t accepted_ = 0;
  uint64_t greeted_ = 0;
  uint64_t dropped_ = 0;
  uint64_t received_bytes_ = 0;
  std::chrono::steady_clock::time_point next_acknowledge_;
  std::string buffer_;
};

}  // namespace gpuprobe::ingest
