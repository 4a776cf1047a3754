// The collector's place in the file system: the socket's path, its private directory, and the lock that lets
// one collector own it.
//
// Both the default path and the rules of ownership are a contract with the injector. The lock file beside the
// socket holds the owner's pid and is locked with flock for as long as the owner lives, so that a socket left
// behind by a crash is recognised and replaced.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::ingest {

// $GPUPROBE_SOCKET, else $XDG_RUNTIME_DIR/gpuprobe/collector.sock, else /tmp/gpuprobe-$UID/collector.sock.
std::string DefaultSocketPath();

// Where a collector for all users of a node listens; programs look there last.
inline constexpr char kNodeSocketPath[] = "/run/gpuprobe/collector.sock";

// Who may connect.
enum class Audience : uint8_t {
  kOwner,  // directory 0700, socket 0600
  kNode,   // every user: directory 0755, socket 0666
};

// A directory of sockets, held open: what is made in it later is made there, whatever the name refers to by
// then. One that is called after us is made if it is missing, and must be ours alone; any other is the user's
// to make: its name may be a mistake.
absl::StatusOr<int> OpenSocketDirectory(const std::string& directory, Audience audience = Audience::kOwner);

class Endpoint {
 public:
  // Makes the directory, takes the lock, binds and listens. AlreadyExists, with the pid of the owner, when
  // another collector has it; FailedPrecondition when another user owns the directory or could replace the
  // socket in it; otherwise the system's error.
  static absl::StatusOr<Endpoint> Open(const std::string& path, Audience audience = Audience::kOwner);

  ~Endpoint();
  Endpoint(Endpoint&& other) noexcept;
  Endpoint& operator=(Endpoint&&) = delete;

  int listen_fd() const { return listen_fd_; }
  const std::string& path() const { return path_; }

 private:
  Endpoint(std::string path, int directory_fd, int listen_fd, int lock_fd)
      : path_(std::move(path)), directory_fd_(directory_fd), listen_fd_(listen_fd), lock_fd_(lock_fd) {}

  std::string path_;
  int directory_fd_;
  int listen_fd_;
  int lock_fd_;
};

}  // namespace gpuprobe::ingest
