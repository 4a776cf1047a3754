#include "collector/http/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::http {
namespace {

// When it is full, the next client waits for a second, so it must not be easy to fill.
constexpr int kBacklog = 4096;
constexpr uint32_t kLoopbackNet = 127;  // the first of an IPv4 address's four numbers

struct Place {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

std::optional<Place> PlaceOf(const std::string& host, uint16_t port) {
  Place place;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&place.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&place.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    place.size = sizeof(*v4);
    return place;
  }
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    place.size = sizeof(*v6);
    return place;
  }
  return std::nullopt;
}

bool IsLoopbackNumber(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == kLoopbackNet;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

struct HostAndPort {
  std::string_view host;
  std::string_view port;  // empty: none is given
};

// "[::1]:9460", "[::1]", "host:9460", "host"
std::optional<HostAndPort> Split(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return std::nullopt;
    return HostAndPort{text.substr(1, end - 1), rest.empty() ? rest : rest.substr(1)};
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return HostAndPort{text, ""};
  if (text.find(':') != colon) return std::nullopt;
  return HostAndPort{text.substr(0, colon), text.substr(colon + 1)};
}

uint16_t PortOf(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

absl::Status WhyNot(const Address& address, int error) {
  const std::string where = address.Text();
  if (error == EADDRINUSE) {
    return absl::UnavailableError(
        absl::StrCat("port ", address.port, " of ", address.host,
                     " is already in use; choose another one, or port 0 for any that is free"));
  }
  if (error == EADDRNOTAVAIL)
    return absl::InvalidArgumentError(absl::StrCat(where, " is not an address of this host"));
  return absl::UnavailableError(absl::StrCat("cannot listen on ", where, ": ", std::strerror(error)));
}

}  // namespace

bool Address::IsLoopback() const { return IsLoopbackNumber(host); }

std::string Address::Text() const {
  return absl::StrCat(host.find(':') != std::string::npos ? absl::StrCat("[", host, "]") : host, ":", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  const absl::Status refused = absl::InvalidArgumentError(absl::StrCat(
      "must be HOST:PORT, :PORT or PORT, with a numeric address (127.0.0.1, [::1], 0.0.0.0), got \"",
      std::string(text), "\""));
  Address address;
  const bool port_alone = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  const std::optional<HostAndPort> parts = port_alone ? HostAndPort{.host = "", .port = text} : Split(text);
  if (!parts.has_value() || text.empty()) return refused;
  if (!parts->port.empty()) {
    const char* end = parts->port.data() + parts->port.size();
    const auto [stopped, error] = std::from_chars(parts->port.data(), end, address.port);
    if (error != std::errc() || stopped != end) return refused;
  }
  if (!parts->host.empty()) address.host = parts->host == "localhost" ? kDefaultHost : parts->host;
  if (!PlaceOf(address.host, 0).has_value()) return refused;
  return address;
}

bool NamesLoopback(std::string_view host_header) {
  const std::optional<HostAndPort> parts = Split(host_header);
  return parts.has_value() && (absl::AsciiStrToLower(std::string(parts->host)) == "localhost" ||
                               IsLoopbackNumber(std::string(parts->host)));
}

absl::StatusOr<Listener> Listener::Open(const Address& address) {
  const std::optional<Place> place = PlaceOf(address.host, address.port);
  if (!place.has_value())
    return absl::InvalidArgumentError(absl::StrCat(address.host, " is not a numeric address"));
  const int fd = socket(place->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return WhyNot(address, errno);
  Listener listener(fd, address);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // after a restart; never two at a time
  if (bind(fd, reinterpret_cast<const sockaddr*>(&place->storage), place->size) != 0 ||
      listen(fd, kBacklog) != 0) {
    return WhyNot(address, errno);
  }
  listener.address_.port = PortOf(fd);
  return listener;
}

Listener::~Listener() {
  if (fd_ >= 0) close(fd_);
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), address_(std::move(other.address_)) {}

}  // namespace gpuprobe::http
