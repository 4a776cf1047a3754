#include "collector/ingest/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace gpuprobe::ingest {
namespace {

using Clock = std::chrono::steady_clock;

absl::Status Add(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    return absl::UnavailableError(absl::StrCat("epoll_ctl: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

void SendBestEffort(int fd, const std::string& bytes) {
  // A client that does not read its refusal is not waited for.
  if (!bytes.empty()) (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& socket_path, Audience audience,
                                                      UserSinkFactory make_sink) {
  absl::StatusOr<Endpoint> endpoint = Endpoint::Open(socket_path, audience);
  if (!endpoint.ok()) return endpoint.status();
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return absl::UnavailableError(absl::StrCat("epoll_create1: ", std::strerror(errno)));
  const int listen_fd = endpoint->listen_fd();
  std::unique_ptr<Server> server(new Server(*std::move(endpoint), audience, std::move(make_sink), epoll_fd));
  if (absl::Status s = Add(epoll_fd, listen_fd); !s.ok()) return s;
  return server;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& socket_path, SinkFactory make_sink) {
  return Start(socket_path, Audience::kOwner,
               [make_sink = std::move(make_sink)](uid_t, const v1::Hello& hello, std::string_view raw) {
                 return make_sink(hello, raw);
               });
}

absl::StatusOr<std::unique_ptr<Server>> Server::StartForNode(const std::string& socket_path,
                                                             UserSinkFactory make_sink) {
  return Start(socket_path, Audience::kNode, std::move(make_sink));
}

Server::Server(Endpoint endpoint, Audience audience, UserSinkFactory make_sink, int epoll_fd)
    : endpoint_(std::move(endpoint)),
      audience_(audience),
      make_sink_(std::move(make_sink)),
      epoll_fd_(epoll_fd),
      buffer_(256 << 10, '\0') {}

Server::~Server() {
  while (!clients_.empty()) End(clients_.begin()->first);
  close(epoll_fd_);
}

absl::Status Server::Watch(int fd, std::function<void()> on_readable) {
  if (absl::Status s = Add(epoll_fd_, fd); !s.ok()) return s;
  watched_[fd] = std::move(on_readable);
  return absl::OkStatus();
}

void Server::Poll(std::chrono::milliseconds timeout) {
  AcknowledgeIfDue();  // what the caller's clock has written since
  epoll_event events[64];
  const int n = epoll_wait(epoll_fd_, events, 64, static_cast<int>(timeout.count()));
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == endpoint_.listen_fd()) {
      Accept();
    } else if (const auto watched = watched_.find(fd); watched != watched_.end()) {
      watched->second();
    } else {
      Serve(fd, (events[i].events & (EPOLLHUP | EPOLLERR)) != 0);
    }
  }
}

// What is written is mostly written while a client's batches are read, and acknowledged then.
void Server::AcknowledgeIfDue() {
  constexpr std::chrono::milliseconds kEvery{50};
  if (Clock::now() < next_acknowledge_) return;
  next_acknowledge_ = Clock::now() + kEvery;
  std::string reply;
  for (const auto& [fd, client] : clients_) {
    reply.clear();
    client.session->Acknowledge(reply);
    client.session->Acknowledge(reply);
    SendBestEffort(fd, reply);
  }
}

void Server::SayEnded() {
  std::string words;
  AppendEnded(words);
  for (const auto& [fd, client] : clients_) SendBestEffort(fd, words);
}

bool Server::Admit(int fd, uid_t& user) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  user = peer.uid;
  if (audience_ == Audience::kNode || peer.uid == getuid() || peer.uid == 0) return true;
  spdlog::warn("a client of uid {} (pid {}) was turned away: this collector serves uid {}", peer.uid,
               peer.pid, getuid());
  return false;
}

void Server::Accept() {
  while (true) {
    const int fd = accept4(endpoint_.listen_fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    ++accepted_;
    uid_t user = 0;
    if (clients_.size() >= kMaxClients || !Admit(fd, user) || !Add(epoll_fd_, fd).ok()) {
      ++dropped_;
      close(fd);
      continue;
    }
    Client& client = clients_[fd];
    client.fd = fd;
    client.make_sink = [this, user](const v1::Hello& hello, std::string_view raw) {
      return make_sink_(user, hello, raw);
    };
    client.session = std::make_unique<Session>(client.make_sink);
  }
}

void Server::Serve(int fd, bool hung_up) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  size_t budget = kBudgetBytes;
  while (budget > 0) {
    const ssize_t n = recv(fd, buffer_.data(), std::min(budget, buffer_.size()), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (hung_up) End(fd);
      return;
    }
    if (n <= 0) {
      End(fd);
      return;
    }
    received_bytes_ += static_cast<uint64_t>(n);
    budget -= static_cast<size_t>(n);
    std::string reply;
    const absl::Status status = client.session->Receive({buffer_.data(), static_cast<size_t>(n)}, reply);
    if (!client.counted && client.session->greeted()) {
      client.counted = true;
      ++greeted_;
    }
    if (!status.ok()) {
      Drop(client, status, reply);
      return;
    }
    SendBestEffort(fd, reply);
  }
}

void Server::Drop(Client& client, const absl::Status& why, const std::string& reply) {
  ++dropped_;
  spdlog::warn("{} was dropped: {}", client.session->name(), std::string(why.message()));
  // A probe that is not told to stay away comes back with the same.
  std::string refusal = reply;
  if (client.session->greeted()) AppendRefusal(std::string(why.message()), refusal);
  SendBestEffort(client.fd, refusal);
  End(client.fd);
}

void Server::End(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  clients_.erase(found);  // the session tells its sink
  close(fd);
}

void Server::Drain(std::chrono::milliseconds quiet, std::chrono::milliseconds limit) {
  Accept();
  v1::Frame flush;
  flush.mutable_control()->set_flush(true);
  std::string request;
  framing::AppendDelimited(flush.SerializeAsString(), request);
  for (const auto& [fd, client] : clients_) SendBestEffort(fd, request);
  const Clock::time_point end = Clock::now() + limit;
  Clock::time_point last_data = Clock::now();
  while (!clients_.empty() && Clock::now() < end && Clock::now() - last_data < quiet) {
    const uint64_t before = received_bytes_;
    Poll(std::chrono::milliseconds(20));
    if (received_bytes_ != before) last_data = Clock::now();
  }
}

}  // namespace gpuprobe::ingest
