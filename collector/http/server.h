// Serves a run over HTTP: the page, its documents, events while the run goes on, metrics, and signs of life.
// docs/http-api.md describes what it answers.
//
// A thread for each connection (places.h bounds them, for each peer), besides one that accepts. They read
// snapshots from the board, and the run's files, and nothing else: a client that does not read, or asks for
// everything at once, costs a connection and never the recording. GET and HEAD only; nothing here changes
// anything.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "collector/http/address.h"
#include "collector/http/board.h"
#include "collector/http/metrics.h"

namespace gpuprobe::http {

class DocumentBuilder;

class Server {
 public:
  // How many connections may be streams of events: there is always room for requests. The second number is
  // for all users but the owner.
  static constexpr size_t kMostViewers = 100;
  static constexpr size_t kMostOtherViewers = 70;

  struct Options {
    Address address;
    std::string token;  // empty: none is asked for
  };
  // InvalidArgument without a token where the address is not loopback.
  static absl::Status CheckReaders(const Options& options);
  // Listens without answering yet: it has no thread before Start. InvalidArgument without a token where the
  // address is not loopback.
  static absl::StatusOr<std::unique_ptr<Server>> Listen(const Options& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // `board` and `builder` (may be null: whose numbers /metrics has) outlive it.
  void Start(Board& board, const DocumentBuilder* builder);
  // Ends every connection, and waits for their threads. Also done by the end of this object.
  void Stop();
  // "http://127.0.0.1:9460"
  std::string Url() const;
  ServerNumbers numbers() const;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::http
