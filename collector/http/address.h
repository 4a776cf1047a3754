// Where the page is served: "127.0.0.1:9460", ":9460", "9460", "[::1]:0" or "localhost:9460", and the socket
// that listens there.
//
// A loopback address is for the people of this host; any other needs a token (access.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpuprobe::http {

inline constexpr char kDefaultHost[] = "127.0.0.1";
inline constexpr uint16_t kDefaultPort = 9460;

struct Address {
  std::string host = kDefaultHost;  // a number of IPv4 or IPv6, without brackets
  uint16_t port = kDefaultPort;     // 0: the system chooses one

  bool IsLoopback() const;
  // "127.0.0.1:9460", "[::1]:9460"
  std::string Text() const;
};

// InvalidArgument, with the forms that are allowed. Names are not looked up, "localhost" excepted.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// Whether the Host header of a request names this host: "localhost" or a loopback number, with any port. A
// foreign site whose name was made to resolve to this host (DNS rebinding) sends its own name.
bool NamesLoopback(std::string_view host_header);

// A socket that listens. Closed with this object.
class Listener {
 public:
  // One clear line if the port is taken or the address is not this host's.
  static absl::StatusOr<Listener> Open(const Address& address);
  ~Listener();
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;

  int fd() const { return fd_; }
  // With the port that was chosen.
  const Address& address() const { return address_; }

 private:
  Listener(int fd, Address address) : fd_(fd), address_(std::move(address)) {}
  int fd_;
  Address address_;
};

}  // namespace gpuprobe::http
