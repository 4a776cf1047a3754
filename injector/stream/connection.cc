#include "injector/stream/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace gpuprobe::injector {

namespace {

constexpr int kLowestDescriptor = 512;  // programs that use descriptors by number use small ones
constexpr int kTries = 5;               // 1 ms apart, while others keep the listener's queue full

bool Trusted(int fd) noexcept {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace

SocketPlaces FindSocketPlaces(const char* configured, const char* runtime_dir, uint32_t uid) noexcept {
  SocketPlaces places;
  if (configured != nullptr && *configured != '\0') {
    places.configured = true;
    places.paths[0].Add(configured);
    places.count = places.paths[0].cut() ? 0 : 1;
    return places;
  }
  if (runtime_dir != nullptr && *runtime_dir == '/') {
    SocketPath& path = places.paths[places.count];
    path.Add(runtime_dir).Add("/gpuprobe/collector.sock");
    if (path.cut()) {
      path.Clear();
    } else {
      ++places.count;
    }
  }
  places.paths[places.count++].Add("/tmp/gpuprobe-").AddNumber(uid).Add("/collector.sock");
  places.paths[places.count++].Add("/run/gpuprobe/collector.sock");
  return places;
}

bool Connection::TryConnect(const char* path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length == 0 || length >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path, length + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  int connected = -1;
  for (int i = 0; i < kTries && connected != 0; ++i) {
    connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    if (connected != 0 && errno != EAGAIN) break;
    const timespec pause{0, 1'000'000};
    if (connected != 0) nanosleep(&pause, nullptr);
  }
  if (connected != 0 || !Trusted(fd)) {
    close(fd);
    return false;
  }
  Adopt(fd);
  return true;
}

int Connection::TryPlaces(const SocketPlaces& places) noexcept {
  for (int i = 0; i < places.count; ++i) {
    if (TryConnect(places.paths[i].c_str())) return i;
  }
  return -1;
}

void Connection::Adopt(int fd) noexcept {
  Close();
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (high >= 0) {
    close(fd);
    fd = high;
  }
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    close(fd);
    return;
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  fd_ = fd;
}

void Connection::Close() noexcept {
  if (fd_ < 0) return;
  if (StillOurs()) close(fd_);
  fd_ = -1;
}

bool Connection::StillOurs() noexcept {
  struct stat status {};
  return fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

Connection::Result Connection::Send(const char* data, size_t size, size_t* sent) noexcept {
  *sent = 0;
  if (fd_ < 0 || !StillOurs()) return Result::kClosed;
  const ssize_t written = send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written >= 0) {
    *sent = static_cast<size_t>(written);
    return Result::kOk;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS ? Result::kAgain
                                                                                       : Result::kClosed;
}

Connection::Result Connection::Receive(char* data, size_t capacity, size_t* received) noexcept {
  *received = 0;
  if (fd_ < 0 || !StillOurs()) return Result::kClosed;
  const ssize_t got = recv(fd_, data, capacity, MSG_DONTWAIT);
  if (got > 0) {
    *received = static_cast<size_t>(got);
    return Result::kOk;
  }
  if (got == 0) return Result::kClosed;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Result::kAgain : Result::kClosed;
}

void Connection::WaitWritable(int milliseconds) const noexcept {
  pollfd entry{fd_, POLLOUT, 0};
  poll(&entry, 1, milliseconds);
}

}  // namespace gpuprobe::injector
