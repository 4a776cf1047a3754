#include "collector/ingest/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/log/log.h"

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
  // Does not wait for a client that does not read its refusal.
  if (!bytes.empty()) (void)send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The client gets a descriptor of its own (SCM_RIGHTS); an older one reads the bytes alone, and the kernel
// closes it.
void SendWithDescriptor(int fd, std::string& bytes, int passed) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &passed, sizeof(passed));
  if (!bytes.empty()) (void)sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(std::optional<Endpoint> endpoint, SinkFactory make_sink,
                                                      const ClientLimits& limits) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) return absl::UnavailableError(absl::StrCat("epoll_create1: ", std::strerror(errno)));
  const int listen_fd = endpoint.has_value() ? endpoint->listen_fd() : -1;
  std::unique_ptr<Server> server(new Server(std::move(endpoint), std::move(make_sink), limits, epoll_fd));
  if (listen_fd < 0) return server;
  if (absl::Status s = Add(epoll_fd, listen_fd); !s.ok()) return s;
  return server;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& socket_path, SinkFactory make_sink,
                                                      const ClientLimits& limits) {
  absl::StatusOr<Endpoint> endpoint = Endpoint::Open(socket_path);
  if (!endpoint.ok()) return endpoint.status();
  return Start(std::optional<Endpoint>(*std::move(endpoint)), std::move(make_sink), limits);
}

absl::StatusOr<std::unique_ptr<Server>> Server::StartWithoutSocket(SinkFactory make_sink,
                                                                   const ClientLimits& limits) {
  return Start(std::nullopt, std::move(make_sink), limits);
}

Server::Server(std::optional<Endpoint> endpoint, SinkFactory make_sink, const ClientLimits& limits,
               int epoll_fd)
    : endpoint_(std::move(endpoint)),
      make_sink_(std::move(make_sink)),
      limits_(limits),
      epoll_fd_(epoll_fd),
      buffer_(256 << 10, '\0') {}

Server::~Server() {
  for (const auto& [fd, client] : clients_) client.session->Leave();
  while (!clients_.empty()) End(clients_.begin()->first);
  close(epoll_fd_);
}

absl::Status Server::Watch(int fd, std::function<void()> on_readable) {
  if (absl::Status s = Add(epoll_fd_, fd); !s.ok()) return s;
  watched_[fd] = std::move(on_readable);
  return absl::OkStatus();
}

void Server::Unwatch(int fd) {
  if (watched_.erase(fd) != 0) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void Server::Poll(std::chrono::milliseconds timeout) {
  ResumeIfDue();
  DropSilent();
  AcknowledgeIfDue();  // what the caller's clock has written since
  epoll_event events[64];
  const int n = epoll_wait(epoll_fd_, events, 64, static_cast<int>(timeout.count()));
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (endpoint_.has_value() && fd == endpoint_->listen_fd()) {
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
    SendBestEffort(fd, reply);
  }
}

void Server::SayEnded() {
  std::string words;
  AppendEnded(words);
  for (const auto& [fd, client] : clients_) SendBestEffort(fd, words);
}

bool Server::AskToDetach(pid_t pid) {
  v1::Frame detach;
  detach.mutable_control()->set_detach(true);
  std::string request;
  framing::AppendDelimited(detach.SerializeAsString(), request);
  bool any = false;
  for (const auto& [fd, client] : clients_) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (pid != 0 && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid != pid)) continue;
    SendBestEffort(fd, request);
    any = true;
  }
  return any;
}

bool Server::Admit(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (limits_.refuses_parent && peer.pid == getppid()) {
    std::string refusal;
    AppendRefusal(
        absl::StrCat("pid ", peer.pid, " adopts orphans, and has become the parent of this collector, ",
                     "which another process started; nothing is recorded of it. Start gpuprobe collect, ",
                     "or use gpuprobe run -- CMD."),
        refusal);
    SendBestEffort(fd, refusal);
    return false;
  }
  if (peer.uid == getuid() || peer.uid == 0 || peer.uid == limits_.other_user) return true;
  Warn(absl::StrCat("a client of uid ", peer.uid, " (pid ", peer.pid,
                    ") was turned away: this collector serves uid ", getuid()));
  return false;
}

void Server::Accept() {
  while (endpoint_.has_value() && !paused_) {
    const int fd = accept4(endpoint_->listen_fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) Pause();
      return;
    }
    ++accepted_;
    if (!Admit(fd)) {
      ++dropped_;
      close(fd);
      continue;
    }
    Take(fd);
  }
}

// Without descriptors no client can be accepted, and the listener would stay readable all the time.
void Server::Pause() {
  constexpr std::chrono::milliseconds kPause{200};
  Warn(absl::StrCat("no new clients for the moment: ", std::strerror(errno)));
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, endpoint_->listen_fd(), nullptr);
  paused_ = true;
  resume_at_ = Clock::now() + kPause;
}

void Server::ResumeIfDue() {
  if (!paused_ || Clock::now() < resume_at_) return;
  paused_ = false;
  if (!Add(epoll_fd_, endpoint_->listen_fd()).ok()) Pause();
}

void Server::Take(int fd) {
  std::string refusal;
  if (clients_.size() >= limits_.clients) {
    AppendRefusal(absl::StrCat("this collector has ", clients_.size(), " clients already"), refusal);
  } else if (absl::Status s = Add(epoll_fd_, fd); !s.ok()) {
    AppendRefusal(std::string(s.message()), refusal);
  }
  if (!refusal.empty()) {
    ++dropped_;
    Warn("a client was turned away: there are too many");
    SendBestEffort(fd, refusal);
    close(fd);
    return;
  }
  Client& client = clients_[fd];
  client.fd = fd;
  client.number = ++taken_;
  client.session = std::make_unique<Session>(make_sink_, limits_, make_answerer_);
  client.session->SetSocket(fd);
  waiting_.push_back({fd, client.number, Clock::now() + limits_.hello_wait});
}

void Server::DropAll(const std::string& why) {
  while (!clients_.empty()) Drop(clients_.begin()->second, absl::ResourceExhaustedError(why), "");
}

void Server::DropSilent() {
  while (!waiting_.empty()) {
    const Waiting first = waiting_.front();
    const auto found = clients_.find(first.fd);
    const bool waits =
        found != clients_.end() && found->second.number == first.number && !found->second.session->greeted();
    if (waits && Clock::now() < first.until) return;
    waiting_.pop_front();
    if (!waits) continue;
    Drop(found->second,
         absl::DeadlineExceededError(absl::StrCat(
             "it did not send Hello within ",
             std::chrono::duration_cast<std::chrono::seconds>(limits_.hello_wait).count(), " s")),
         "");
  }
}

void Server::NoteHeld(Client& client) {
  const size_t now = client.session->held_bytes();
  held_bytes_ += now - client.held_bytes;
  client.held_bytes = now;
  if (held_bytes_ > limits_.unfinished_bytes) FreeHeld();
}

// Frees down to three quarters of the limit, so that it is not needed again at once.
void Server::FreeHeld() {
  for (auto& [fd, client] : clients_) {
    client.session->Shrink();
    held_bytes_ += client.session->held_bytes() - client.held_bytes;
    client.held_bytes = client.session->held_bytes();
  }
  while (held_bytes_ > limits_.unfinished_bytes / 4 * 3) {
    const auto most = std::max_element(clients_.begin(), clients_.end(), [](const auto& a, const auto& b) {
      return a.second.held_bytes < b.second.held_bytes;
    });
    Drop(most->second,
         absl::ResourceExhaustedError(absl::StrCat("its unfinished frame has ", most->second.held_bytes,
                                                   " bytes, and too many clients have unfinished frames")),
         "");
  }
}

void Server::Warn(std::string text) {
  if (warnings_.Pass(text)) log::Warn(text);
}

void Server::Serve(int fd, bool hung_up) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  size_t budget = kBudgetBytes;
  while (budget > 0) {
    const size_t most = client.counted ? buffer_.size() : std::min(buffer_.size(), limits_.hello_bytes);
    const ssize_t n = recv(fd, buffer_.data(), std::min(budget, most), 0);
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
    if (const int passed = client.session->TakeDescriptor(); passed >= 0) {
      SendWithDescriptor(fd, reply, passed);
      close(passed);
    } else {
      SendBestEffort(fd, reply);
    }
    NoteHeld(client);
    if (!clients_.contains(fd)) return;  // it held most
  }
}

void Server::Drop(Client& client, const absl::Status& why, const std::string& reply) {
  ++dropped_;
  Warn(absl::StrCat(client.session->name(), " was dropped: ", why.message()));
  // A probe that is not refused reconnects and sends the same again.
  std::string refusal = reply;
  if (refusal.empty() || client.session->greeted()) AppendRefusal(std::string(why.message()), refusal);
  SendBestEffort(client.fd, refusal);
  client.session->Leave();
  End(client.fd);
}

void Server::End(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
  held_bytes_ -= found->second.held_bytes;
  clients_.erase(found);  // the session notifies its sink
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
