#include "injector/send/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

namespace gpuprobe::injector {

namespace {

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
  if (!socket_.OpenStreamSocket()) return false;
  const int connected = connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  busy_ = busy_ || (connected != 0 && errno == EAGAIN);
  if (connected == 0 && Trusted(socket_.get())) return true;
  socket_.Close();
  return false;
}

int Connection::TryPlaces(const SocketPlaces& places) noexcept {
  busy_ = false;
  for (int i = 0; i < places.count; ++i) {
    if (TryConnect(places.paths[i].c_str())) return i;
  }
  return -1;
}

void Connection::Adopt(int fd) noexcept {
  if (socket_.Adopt(fd)) fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

void Connection::Close() noexcept { socket_.Close(); }

Connection::Result Connection::Send(const char* data, size_t size, size_t* sent) noexcept {
  *sent = 0;
  if (!socket_.StillOurs()) return Result::kClosed;
  const ssize_t written = send(socket_.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written >= 0) {
    *sent = static_cast<size_t>(written);
    return Result::kOk;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS ? Result::kAgain
                                                                                       : Result::kClosed;
}

Connection::Result Connection::Receive(char* data, size_t capacity, size_t* received) noexcept {
  *received = 0;
  if (!socket_.StillOurs()) return Result::kClosed;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  iovec bytes{data, capacity};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    // The padding of CMSG_SPACE has room for a second one.
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(header) + at, sizeof(fd));
      if (at == CMSG_LEN(0)) {
        passed_.Adopt(fd);
      } else {
        close(fd);
      }
    }
  }
  if (got > 0) {
    *received = static_cast<size_t>(got);
    return Result::kOk;
  }
  if (got == 0) return Result::kClosed;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? Result::kAgain : Result::kClosed;
}

void Connection::WaitWritable(int milliseconds) const noexcept {
  pollfd entry{socket_.get(), POLLOUT, 0};
  poll(&entry, 1, milliseconds);
}

void Connection::WaitReadable(int milliseconds) const noexcept {
  pollfd entry{socket_.get(), POLLIN, 0};
  poll(&entry, 1, milliseconds);
}

}  // namespace gpuprobe::injector
