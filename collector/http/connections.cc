#include "collector/http/connections.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "collector/http/background.h"
#include "collector/http/peer.h"
#include "collector/http/places.h"

namespace gpuprobe::http {
namespace {

constexpr size_t kMostRequests = 1000;  // of one connection
constexpr size_t kMostBodyBytes = size_t{16} << 20;
// Brief connections that were displaced may still be ending.
constexpr size_t kMostThreads = Places::kMost + 2 * Places::kMostBrief;

// The connection whose request this thread answers: the library passes only the request.
thread_local Connection* current = nullptr;

}  // namespace

// The library's part: it reads a request, asks us, and writes the answer. Connections are ours.
class Library : public httplib::Server {
 public:
  Library() {
    // Anything but "invalid": it is how the library knows that it is not shutting down.
    svr_sock_ = 0;
    set_keep_alive_max_count(kMostRequests);
    set_payload_max_length(kMostBodyBytes);
    set_default_headers({{"Cache-Control", "no-store"},
                         {"X-Content-Type-Options", "nosniff"},
                         {"X-Frame-Options", "DENY"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cross-Origin-Opener-Policy", "same-origin"},
                         {"Cross-Origin-Resource-Policy", "same-origin"}});
  }
  ~Library() override { svr_sock_ = INVALID_SOCKET; }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  void Stop() { svr_sock_ = INVALID_SOCKET; }

  // A request whose body the service wants is read whole before it is answered, any other is answered at
  // once.
  void SetService(Service& service) {
    service_ = &service;
    const auto answer = [&service](const httplib::Request& request, httplib::Response& response) {
      service.Answer(request, response, *current);
    };
    set_pre_routing_handler([answer](const httplib::Request& request, httplib::Response& response) {
      if (current->takes_body()) return HandlerResponse::Unhandled;
      answer(request, response);
      return HandlerResponse::Handled;
    });
    Post(".*", answer);
  }

  // False: the connection is to be closed.
  bool Process(Connection& connection) {
    bool has_body = false;
    bool closed = false;
    const auto prepare = [&](httplib::Request& request) {
      // Ranges and compression would be computed again for each reader.
      request.ranges.clear();
      request.headers.erase("Range");
      request.headers.erase("Accept-Encoding");
      const uint64_t length = request.get_header_value<uint64_t>("Content-Length");
      if (request.method == "POST" && length > 0 && !request.has_header("Transfer-Encoding") &&
          length <= std::min(service_->MostBodyBytes(request, connection), kMostBodyBytes)) {
        request.headers.erase("Content-Encoding");
        request.headers.erase("Content-Type");  // forms are not parsed
        request.headers.erase("Expect");
        return connection.TakeBody(length);
      }
      // Other bodies are not read: what follows would be parsed as a request.
      has_body = request.method != "GET" && request.method != "HEAD";
      has_body |=
          request.has_header("Transfer-Encoding") || request.get_header_value("Content-Length", 0) > "0";
      if (has_body) request.set_header("Connection", "close");
      request.headers.erase("Expect");
    };
    const bool went_well = process_request(connection, false, closed, prepare);
    return went_well && !closed && !has_body;
  }

 private:
  Service* service_ = nullptr;
};

class Connections::Impl {
 public:
  Impl(Listener listener, std::shared_ptr<const Encryption> encryption, size_t most_of_peer)
      : listener_(std::move(listener)), encryption_(std::move(encryption)), places_(most_of_peer) {}
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Start(Service& service) {
    service_ = &service;
    library_.SetService(service);
    wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    accepting_ = std::thread([this] { Accept(); });
  }
  void Stop() {
    if (!accepting_.joinable()) return;
    stop_ = true;
    library_.Stop();
    Wake();
    accepting_.join();
    for (Client& client : clients_) shutdown(client.fd, SHUT_RDWR);
    for (Client& client : clients_) client.thread.join();
    clients_.clear();
    close(wake_fd_);
  }
  const Address& address() const { return listener_.address(); }

 private:
  struct Client {
    Client(int its_fd, const ConnectionLimits& limits, const Encryption* encryption, Peer its_peer)
        : fd(its_fd), connection(its_fd, limits, encryption), peer(std::move(its_peer)) {}
    int fd;
    Connection connection;
    Peer peer;
    bool displaced = false;  // of a brief one
    std::atomic<bool> done = false;
    std::thread thread;
  };

  void Wake() const {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }
  // Closes the connections that are over.
  void Reap() {
    clients_.remove_if([this](Client& client) {
      if (!client.done) return false;
      client.thread.join();
      Forget(client);
      return true;
    });
  }
  void Forget(const Client& client) {
    places_.Leave(client.peer,
                  client.connection.is_brief() ? Places::Admission::kBrief : Places::Admission::kPlace);
  }

  void Accept() {
    RunInBackground();
    while (!stop_) {
      pollfd fds[] = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0},
                      {.fd = wake_fd_, .events = POLLIN, .revents = 0}};
      if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
      uint64_t ignored = 0;
      (void)!read(wake_fd_, &ignored, sizeof(ignored));
      Reap();
      for (size_t n = 0; n < Places::kMost && !stop_; ++n) {
        const int fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
          // No descriptors are left, and recording needs them more: waiting clients are retried later.
          if (errno != EAGAIN && errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(100));
          break;
        }
        Admit(fd);
      }
    }
  }
  void Admit(int fd) {
    Peer peer = PeerOf(fd);
    Places::Admission admission = places_.Take(peer);
    if (admission == Places::Admission::kRefused) {
      Reap();  // it may have been answered, and asks again
      admission = places_.Take(peer);
    }
    if (admission == Places::Admission::kRefused) return TurnAway(fd);
    const bool is_brief = admission == Places::Admission::kBrief;
    if (is_brief && places_.HasTooManyBrief()) {
      DisplaceBrief();
      if (clients_.size() >= kMostThreads) {
        places_.Leave(peer, admission);
        return TurnAway(fd);
      }
    }
    const ConnectionLimits limits = is_brief ? ConnectionLimits::Brief() : ConnectionLimits{};
    Client& client = clients_.emplace_back(fd, limits, encryption_.get(), std::move(peer));
    client.connection.SetPeer(client.peer);
    try {
      client.thread = std::thread([this, &client] { Serve(client); });
    } catch (const std::system_error&) {  // no threads are left
      Forget(client);
      clients_.pop_back();
    }
  }
  // The oldest has had its time.
  void DisplaceBrief() {
    for (Client& client : clients_) {
      if (!client.connection.is_brief() || client.displaced || client.done) continue;
      client.displaced = true;
      shutdown(client.fd, SHUT_RDWR);
      return;
    }
  }
  void TurnAway(int fd) {
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: "
        "0\r\n\r\n";
    service_->NoteRefused();
    (void)!send(fd, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
  }
  void Serve(Client& client) {
    RunInBackground();
    current = &client.connection;
    size_t requests = 0;
    const size_t most = client.connection.is_brief() ? 1 : kMostRequests;
    while (!stop_ && requests++ < most && client.connection.AwaitRequest()) {
      if (!library_.Process(client.connection)) break;
    }
    client.connection.LetBodyPass();
    client.connection.Keep(nullptr);
    shutdown(client.fd, SHUT_RDWR);
    client.done = true;
    Wake();
  }

  Listener listener_;
  std::shared_ptr<const Encryption> encryption_;
  Library library_;
  Service* service_ = nullptr;
  int wake_fd_ = -1;
  std::atomic<bool> stop_ = false;
  std::list<Client> clients_;  // of the accepting thread
  Places places_;              // of the same thread
  std::thread accepting_;
};

Connections::Connections(Listener listener, std::shared_ptr<const Encryption> encryption, size_t most_of_peer)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(encryption), most_of_peer)) {}
Connections::~Connections() = default;

void Connections::Start(Service& service) { impl_->Start(service); }

void Connections::Stop() { impl_->Stop(); }

const Address& Connections::address() const { return impl_->address(); }

}  // namespace gpuprobe::http
