#include "collector/http/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gpuprobe::http {

Connection::Connection(int fd, const ConnectionLimits& limits, const Encryption* encryption)
    : fd_(fd), limits_(limits) {
  if (encryption != nullptr) encrypted_.emplace(fd, *encryption);
}

Connection::~Connection() {
  encrypted_.reset();
  close(fd_);
}

bool Connection::Await(short events, Clock::time_point until) const {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    constexpr int64_t kMostMs = 60'000;
    pollfd poll_fd{.fd = fd_, .events = events, .revents = 0};
    const int ready = poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left, kMostMs)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool Connection::Await(EncryptedSocket::Needs needs, Clock::time_point until) const {
  if (needs == EncryptedSocket::Needs::kEnd) return false;
  return Await(needs == EncryptedSocket::Needs::kInput ? POLLIN : POLLOUT, until);
}

bool Connection::Fill(Clock::time_point until) {
  used_ = filled_ = 0;
  if (encrypted_.has_value()) {
    for (;;) {
      const EncryptedSocket::Needs needs = encrypted_->Read(buffer_, sizeof(buffer_), filled_);
      if (needs == EncryptedSocket::Needs::kNothing) return Clock::now() < until;
      filled_ = 0;
      if (!Await(needs, until)) return false;
    }
  }
  for (;;) {
    if (!Await(POLLIN, until)) return false;
    const ssize_t n = recv(fd_, buffer_, sizeof(buffer_), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    filled_ = static_cast<size_t>(n);
    return true;
  }
}

bool Connection::AwaitRequest() {
  request_left_ = limits_.request_bytes;
  takes_body_ = false;
  if (used_ == filled_ && !Fill(Clock::now() + limits_.idle)) return false;
  request_until_ = Clock::now() + limits_.request;
  answer_until_ = request_until_ + limits_.answer;
  return true;
}

void Connection::TakeBody(size_t bytes) {
  takes_body_ = true;
  request_left_ += bytes;
  request_until_ += limits_.body;
  answer_until_ = request_until_ + limits_.answer;
}

ssize_t Connection::read(char* data, size_t size) {
  if (request_left_ == 0) return -1;
  if (used_ == filled_ && !Fill(request_until_)) return -1;
  const size_t n = std::min({size, filled_ - used_, request_left_});
  std::memcpy(data, buffer_ + used_, n);
  used_ += n;
  request_left_ -= n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* data, size_t size) {
  const Clock::time_point until = std::min(answer_until_, Clock::now() + limits_.write_stall);
  while (encrypted_.has_value()) {
    size_t done = 0;
    const EncryptedSocket::Needs needs = encrypted_->Write(data, size, done);
    if (needs == EncryptedSocket::Needs::kNothing)
      return Clock::now() < answer_until_ ? static_cast<ssize_t>(done) : -1;
    if (!Await(needs, until)) return -1;
  }
  for (;;) {
    const ssize_t n = send(fd_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return Clock::now() < answer_until_ ? n : -1;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !Await(POLLOUT, until)) return -1;
  }
}

void Connection::LetBodyPass() {
  if (passing_bytes_ == 0) return;
  // What encryption adds.
  size_t left = passing_bytes_ + passing_bytes_ / 16 + sizeof(buffer_);
  const Clock::time_point until = Clock::now() + limits_.request;
  shutdown(fd_, SHUT_WR);
  while (left > 0 && Await(POLLIN, until)) {
    const ssize_t n = recv(fd_, buffer_, std::min(left, sizeof(buffer_)), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return;
    left -= static_cast<size_t>(n);
  }
}

bool Connection::IsGone() const {
  pollfd poll_fd{.fd = fd_, .events = POLLRDHUP, .revents = 0};
  return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// Left out: no answer depends on a client's address, and the library would add it to the request's headers.
void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace gpuprobe::http
