#include "collector/http/peer.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::http {
namespace {

// An address and port as sock_diag wants them; IPv4 also where it came in the form of IPv6.
struct DiagEnd {
  uint8_t family = 0;
  uint32_t address[4] = {};
  uint16_t port = 0;
};

DiagEnd EndOf(const sockaddr_storage& storage) {
  DiagEnd end;
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    end.family = AF_INET;
    end.address[0] = v4.sin_addr.s_addr;
    end.port = v4.sin_port;
  } else if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    end.family = AF_INET6;
    end.port = v6.sin6_port;
    std::memcpy(end.address, &v6.sin6_addr, sizeof(end.address));
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      end.family = AF_INET;
      end.address[0] = end.address[3];
    }
  }
  return end;
}

// The user whose socket `theirs` is, as the kernel knows it.
std::optional<uid_t> UidOf(const DiagEnd& theirs, const DiagEnd& ours) {
  const int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (fd < 0) return std::nullopt;
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct {
    nlmsghdr head;
    inet_diag_req_v2 request;
  } question{};
  question.head.nlmsg_len = sizeof(question);
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = theirs.family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.id.idiag_sport = theirs.port;
  question.request.id.idiag_dport = ours.port;
  std::memcpy(question.request.id.idiag_src, theirs.address, sizeof(theirs.address));
  std::memcpy(question.request.id.idiag_dst, ours.address, sizeof(ours.address));
  question.request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  // The kernel answers before send returns.
  if (send(fd, &question, sizeof(question), MSG_DONTWAIT) < 0) return std::nullopt;
  alignas(nlmsghdr) char answer[1024];
  const ssize_t n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
  if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) ||
      head->nlmsg_type != SOCK_DIAG_BY_FAMILY)
    return std::nullopt;
  const auto* found = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
  // A closed socket has no owner and reports uid 0.
  if (found->idiag_inode == 0) return std::nullopt;
  return found->idiag_uid;
}

std::string TextOf(const DiagEnd& end) {
  char text[INET6_ADDRSTRLEN] = "?";
  uint32_t address[4];
  std::memcpy(address, end.address, sizeof(address));
  if (end.family == AF_INET6) address[2] = address[3] = 0;
  inet_ntop(end.family, address, text, sizeof(text));
  return text;
}

}  // namespace

Peer PeerOf(int fd) {
  sockaddr_storage theirs{};
  sockaddr_storage ours{};
  socklen_t size = sizeof(theirs);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &size) != 0) return {.name = "?"};
  size = sizeof(ours);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &size) != 0) return {.name = "?"};
  const DiagEnd their_end = EndOf(theirs);
  const DiagEnd our_end = EndOf(ours);
  // Only a local connection has its other end here.
  const std::optional<uid_t> uid = UidOf(their_end, our_end);
  if (!uid.has_value()) return {.name = TextOf(their_end)};
  return {.is_owner = *uid == geteuid() || *uid == 0, .name = absl::StrCat("uid ", *uid)};
}

}  // namespace gpuprobe::http
