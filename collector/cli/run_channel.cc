#include "collector/cli/run_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace {

struct RunMessageHead {
  int32_t kind;
  int32_t value;
};

}  // namespace

absl::StatusOr<RunChannel::Pair> RunChannel::Open() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
  return Pair{.waiting = RunChannel(fds[0]), .collector = RunChannel(fds[1])};
}

RunChannel::RunChannel(RunChannel&& other) noexcept : fd_(std::exchange(other.fd_, -1)), gone_(other.gone_) {}

void RunChannel::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void RunChannel::Send(RunMessageKind kind, int32_t value, std::string_view text) const {
  RunMessageHead head{.kind = static_cast<int32_t>(kind), .value = value};
  iovec parts[] = {{.iov_base = &head, .iov_len = sizeof(head)},
                   {.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = text.empty() ? 1 : 2;
  (void)sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool RunChannel::Receive(RunMessage& message, bool wait) {
  RunMessageHead head{};
  iovec parts[] = {{.iov_base = &head, .iov_len = sizeof(head)},
                   {.iov_base = message.text, .iov_len = sizeof(message.text) - 1}};
  msghdr received{};
  received.msg_iov = parts;
  received.msg_iovlen = 2;
  ssize_t n = 0;
  do {
    n = recvmsg(fd_, &received, wait ? 0 : MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n < static_cast<ssize_t>(sizeof(head))) {
    gone_ = true;
    return false;
  }
  message.kind = static_cast<RunMessageKind>(head.kind);
  message.value = head.value;
  message.text[static_cast<size_t>(n) - sizeof(head)] = '\0';
  return true;
}

}  // namespace gpuprobe::cli
