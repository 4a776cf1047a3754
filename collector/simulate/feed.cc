#include "collector/simulate/feed.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

namespace gpuprobe::simulate {
namespace {

constexpr size_t kOtherDescriptors = 64;

absl::Status MakeRoomForDescriptors(size_t clients) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const rlim_t wanted = clients + kOtherDescriptors;
  if (limit.rlim_cur >= wanted) return absl::OkStatus();
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(clients, " connections need ", wanted,
                                                   " file descriptors; the limit is ", limit.rlim_max));
}

}  // namespace

Feed::~Feed() {
  for (const int fd : fds_) close(fd);
}

absl::Status Feed::ConnectOne(int* fd) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof(address.sun_path))
    return absl::InvalidArgumentError(absl::StrCat(socket_, ": too long for a socket"));
  std::memcpy(address.sun_path, socket_.c_str(), socket_.size() + 1);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*fd < 0) return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  if (connect(*fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return absl::OkStatus();
  const int error = errno;
  close(*fd);
  return absl::UnavailableError(absl::StrCat(socket_, ": ", std::strerror(error)));
}

absl::Status Feed::Connect(size_t clients, std::chrono::milliseconds patience,
                           const std::function<bool()>& alive) {
  if (absl::Status s = MakeRoomForDescriptors(clients); !s.ok()) return s;
  const auto end = std::chrono::steady_clock::now() + patience;
  while (fds_.size() < clients) {
    int fd = -1;
    absl::Status status = ConnectOne(&fd);
    if (status.ok()) {
      fds_.push_back(fd);
    } else if (!alive() || std::chrono::steady_clock::now() > end) {
      return status;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  return absl::OkStatus();
}

absl::Status Feed::Send(size_t client, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fds_[client], bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return absl::UnavailableError(
          absl::StrCat("the collector closed the connection of rank ", client, ": ", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

void Feed::Finish(size_t client) { shutdown(fds_[client], SHUT_WR); }

void Feed::AwaitRead() {
  char ignored[4096];
  for (const int fd : fds_) {
    ssize_t n = 1;
    while (n > 0 || (n < 0 && errno == EINTR)) n = recv(fd, ignored, sizeof(ignored), 0);
  }
}

}  // namespace gpuprobe::simulate
