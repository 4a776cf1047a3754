// The socket to the collector: where to look for it, whom to trust at the other end, and sending that never
// blocks.
//
// The sender decides what is sent and when. Thread: TryConnect on the starting thread once, then everything
// on the probe's own. Allocation: none; one descriptor, out of the program's way (own_descriptor.h). Failure:
// an enum; the process's signals and other descriptors are never touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/base/own_descriptor.h"
#include "injector/base/text.h"

namespace gpuprobe::injector {

inline constexpr size_t kMaxSocketPath = 108;  // of sockaddr_un, with its zero
using SocketPath = TextBuffer<kMaxSocketPath>;

// The places where a collector may listen, in order. `configured` is GPUPROBE_SOCKET: when it is not empty,
// it is the only one.
struct SocketPlaces {
  SocketPath paths[3];
  int count = 0;
  bool configured = false;
};
SocketPlaces FindSocketPlaces(const char* configured, const char* runtime_dir, uint32_t uid) noexcept;

class Connection {
 public:
  enum class Result {
    kOk,
    kAgain,  // not now: the other end is slow, or has not sent anything
    kClosed,
  };

  Connection() = default;
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Never blocks. False: no listener, or one that is not trusted (neither our user nor root).
  bool TryConnect(const char* path) noexcept;
  // The first of `places` that answers; its index, or -1.
  int TryPlaces(const SocketPlaces& places) noexcept;
  // A collector listens at one of them, but its queue of waiting connections is full: try again.
  bool busy() const noexcept { return busy_; }
  // Takes over a connected socket that has just been opened.
  void Adopt(int fd) noexcept;
  void Close() noexcept;
  bool open() const noexcept { return socket_.open(); }

  // Writes what the socket takes now; `sent` is how much that was. Never raises SIGPIPE.
  Result Send(const char* data, size_t size, size_t* sent) noexcept;
  // Reads the available bytes, and a descriptor that was passed with them (SCM_RIGHTS); one at most is kept.
  Result Receive(char* data, size_t capacity, size_t* received) noexcept;
  // What was passed and not taken yet.
  OwnDescriptor& passed() noexcept { return passed_; }
  // Waits until the socket takes bytes, or has some, at most `milliseconds`.
  void WaitWritable(int milliseconds) const noexcept;
  void WaitReadable(int milliseconds) const noexcept;

 private:
  OwnDescriptor socket_;
  OwnDescriptor passed_;
  bool busy_ = false;
};

}  // namespace gpuprobe::injector
