#include "collector/recording/node_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collector/recording/node_limits.h"

namespace gpuprobe::recording::node {
namespace {

constexpr char kProgress = 'P';
constexpr char kLine = 'L';
constexpr int kConnectionsAtOnce = 64;
constexpr int kBytesInFlight = static_cast<int>(kClientsOfUser) * 2048;

}  // namespace

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::pair<Channel, Channel>> Channel::MakePair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
  // Room for all of a user's ranks, which may connect at once while his process starts. Only root can have
  // it.
  const int room = kBytesInFlight;
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
  return std::pair<Channel, Channel>(Channel(ends[0]), Channel(ends[1]));
}

bool Channel::PassConnection(int connection) const {
  char byte = 'C';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &connection, sizeof(int));
  return sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void Channel::EndPassing() const { shutdown(fd_, SHUT_WR); }

bool Channel::TakeConnections(const std::function<void(int connection)>& take) const {
  for (int i = 0; i < kConnectionsAtOnce; ++i) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    int connection = -1;  // stays so when this process has no descriptor left: the client sees its end
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int)))
      std::memcpy(&connection, CMSG_DATA(header), sizeof(int));
    take(connection);
  }
  return true;
}

void Channel::SendProgress(const Progress& progress) const {
  char message[1 + sizeof(progress)];
  message[0] = kProgress;
  std::memcpy(message + 1, &progress, sizeof(progress));
  (void)send(fd_, message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Channel::SendLine(std::string_view line) const {
  std::string message(1, kLine);
  message += line.substr(0, kLineBytes);
  (void)send(fd_, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool Channel::Receive(size_t limit, const std::function<void(const Progress&)>& on_progress,
                      const std::function<void(std::string_view line)>& on_line) const {
  for (size_t i = 0; i < limit; ++i) {
    char message[1 + kLineBytes];
    const ssize_t n = recv(fd_, message, sizeof(message), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    const std::string_view content(message + 1, static_cast<size_t>(n) - 1);
    if (message[0] == kProgress && content.size() == sizeof(Progress)) {
      Progress progress;
      std::memcpy(&progress, content.data(), sizeof(progress));
      on_progress(progress);
    } else if (message[0] == kLine) {
      on_line(content);
    }
  }
  return true;
}

}  // namespace gpuprobe::recording::node
