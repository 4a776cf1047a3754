// Serves many clients on one thread: accepts, checks who they are, reads in turn, and ends a client that
// misbehaves.
//
// This is the loop; session.h has the protocol's rules, endpoint.h the socket's place. At most kBudgetBytes
// of each client are read in a round, so that a fast sender does not keep others waiting; the kernel's socket
// buffer is the back pressure. Further file descriptors (signals, a child) take part through Watch. One
// thread; not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "collector/ingest/endpoint.h"
#include "collector/ingest/limits.h"
#include "collector/ingest/session.h"
#include "collector/ingest/warnings.h"

namespace gpuprobe::ingest {

class Server {
 public:
  static constexpr size_t kBudgetBytes = size_t{1} << 20;

  // Serves the user that runs it, and root.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& socket_path, SinkFactory make_sink,
                                                       const ClientLimits& limits = {});
  // Listens nowhere: serves the connections that Take gives it.
  static absl::StatusOr<std::unique_ptr<Server>> StartWithoutSocket(SinkFactory make_sink,
                                                                    const ClientLimits& limits);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // What answers requests; before the first client comes.
  void AnswerRequests(AnswererFactory make_answerer) { make_answerer_ = std::move(make_answerer); }
  // Takes over a connection whose client was checked before; closed if it cannot be served.
  void Take(int fd);
  // Ends every client, with the reason.
  void DropAll(const std::string& why);

  // Calls `on_readable` from Poll whenever `fd` is readable. The descriptor stays the caller's.
  absl::Status Watch(int fd, std::function<void()> on_readable);
  // Not from `on_readable`.
  void Unwatch(int fd);
  // Waits for at most `timeout` and handles what is there.
  void Poll(std::chrono::milliseconds timeout);
  // Announces a clean exit to every client, so that none looks for another collector.
  void SayEnded();
  // Asks the client that is this process (0: every client) to end its recording. It says Bye when all is
  // delivered, and goes on unrecorded. False: there is no such client.
  bool AskToDetach(pid_t pid);
  // Takes everything that clients have sent: asks them to flush, then reads until all have gone or nothing
  // has come for `quiet`, at most `limit`.
  void Drain(std::chrono::milliseconds quiet, std::chrono::milliseconds limit);

  size_t clients() const { return clients_.size(); }
  uint64_t accepted() const { return accepted_; }
  // Clients that said Hello and were taken, ever.
  uint64_t greeted() const { return greeted_; }
  uint64_t dropped() const { return dropped_; }
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  struct Client {
    int fd = -1;
    uint64_t number = 0;  // in the order in which they came
    std::unique_ptr<Session> session;
    bool counted = false;
    size_t held_bytes = 0;
  };
  // A client that has not said Hello.
  struct Waiting {
    int fd;
    uint64_t number;
    std::chrono::steady_clock::time_point until;
  };

  Server(std::optional<Endpoint> endpoint, SinkFactory make_sink, const ClientLimits& limits, int epoll_fd);
  static absl::StatusOr<std::unique_ptr<Server>> Start(std::optional<Endpoint> endpoint,
                                                       SinkFactory make_sink, const ClientLimits& limits);
  void Accept();
  void Pause();
  void ResumeIfDue();
  void Serve(int fd, bool hung_up);
  void End(int fd);
  void AcknowledgeIfDue();
  void Drop(Client& client, const absl::Status& why, const std::string& reply);
  void Warn(std::string text);
  void NoteHeld(Client& client);
  void FreeHeld();
  void DropSilent();
  bool Admit(int fd);

  std::optional<Endpoint> endpoint_;
  SinkFactory make_sink_;
  AnswererFactory make_answerer_;
  ClientLimits limits_;
  int epoll_fd_;
  bool paused_ = false;  // no descriptors were left: no client is accepted until
  std::chrono::steady_clock::time_point resume_at_;
  std::deque<Waiting> waiting_;
  size_t held_bytes_ = 0;  // of all clients
  Warnings warnings_;
  std::map<int, Client> clients_;
  std::map<int, std::function<void()>> watched_;
  uint64_t taken_ = 0;
  uint64_t accepted_ = 0;
  uint64_t greeted_ = 0;
  uint64_t dropped_ = 0;
  uint64_t received_bytes_ = 0;
  std::chrono::steady_clock::time_point next_acknowledge_;
  std::string buffer_;
};

}  // namespace gpuprobe::ingest
