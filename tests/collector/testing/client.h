// A client's end of the socket.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <utility>

namespace gpuprobe::testing {

class Client {
 public:
  explicit Client(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { Close(); }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  Client& operator=(Client&&) = delete;

  bool connected() const { return connected_; }
  bool Send(const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  // Until the other end closes, at most 5 s.
  std::string ReadToEnd() const {
    std::string out;
    char buffer[4096];
    pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
    while (poll(&p, 1, 5000) > 0) {
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) return out;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out + " (not closed)";
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
  bool connected_ = false;
};

}  // namespace gpuprobe::testing
