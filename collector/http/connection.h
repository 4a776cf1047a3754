// A connection with bounds, as the HTTP library reads and writes it: how large a request may be, how long it
// may take to come, and how long its sender may not read the answer.
//
// The library's own sockets have a limit for each read only, and leave out descriptors above 1,023, which a
// collector of a thousand ranks has. Used by one thread; Cut may be called by another.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collector/http/encryption.h"
#include "collector/http/library.h"
#include "collector/http/peer.h"

namespace gpuprobe::http {

struct ConnectionLimits {
  size_t request_bytes = size_t{16} << 10;      // request line and headers
  std::chrono::milliseconds idle{5000};         // until a request begins
  std::chrono::milliseconds request{5000};      // from its first byte to its last
  std::chrono::milliseconds body{60'000};       // from its first byte to its last, if it has a body
  std::chrono::milliseconds write_stall{5000};  // without a byte taken by the other side
  std::chrono::milliseconds answer{120'000};    // a whole answer, unless it is a stream of events
  bool is_brief = false;                        // one short request, and signs of life as the only answer

  static ConnectionLimits Brief() {
    constexpr std::chrono::milliseconds kShort{1000};
    return {.idle = kShort, .request = kShort, .write_stall = kShort, .answer = kShort, .is_brief = true};
  }
};

class Connection : public httplib::Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // Owns `fd`, which does not block. `encryption`: outlives it; null: the connection is not encrypted.
  Connection(int fd, const ConnectionLimits& limits, const Encryption* encryption = nullptr);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Waits for the first byte of a request, and starts its limits anew. False: none comes.
  bool AwaitRequest();
  bool is_brief() const { return limits_.is_brief; }
  // The request that is being read has a body of this size, which may take longer.
  void TakeBody(size_t bytes);
  bool takes_body() const { return takes_body_; }
  // Who is at the other end, and whether that is the owner of the run.
  void SetPeer(const Peer& peer) { peer_ = peer; }
  const std::string& peer() const { return peer_.name; }
  bool is_owners() const { return peer_.is_owner; }
  // Keeps something until the connection ends, or this is called again.
  void Keep(std::shared_ptr<void> kept) { kept_ = std::move(kept); }
  // The last request's body was not read: its sender may finish sending so many bytes before the connection
  // ends, because whoever is cut off while it sends does not read the answer.
  void SetPassing(size_t bytes) { passing_bytes_ = bytes; }
  void LetBodyPass();
  // The answer is a stream of events, and has no end.
  void LetAnswerGoOn() { answer_until_ = Clock::time_point::max(); }
  // Whether the other side has gone.
  bool IsGone() const;

  bool is_readable() const override { return used_ < filled_; }
  bool is_writable() const override { return true; }
  ssize_t read(char* data, size_t size) override;
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  // Not the descriptor: the library would refuse to serve a large one.
  socket_t socket() const override { return 0; }

 private:
  bool Fill(Clock::time_point until);
  bool Await(short events, Clock::time_point until) const;
  bool Await(EncryptedSocket::Needs needs, Clock::time_point until) const;

  int fd_;
  std::optional<EncryptedSocket> encrypted_;
  ConnectionLimits limits_;
  Peer peer_;
  std::shared_ptr<void> kept_;
  size_t passing_bytes_ = 0;
  bool takes_body_ = false;
  size_t request_left_ = 0;
  Clock::time_point request_until_;
  Clock::time_point answer_until_;
  char buffer_[4096];
  size_t used_ = 0;
  size_t filled_ = 0;
};

}  // namespace gpuprobe::http
