#include "collector/http/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/answers.h"
#include "collector/http/connections.h"

namespace gpuprobe::http {

class Server::Impl {
 public:
  Impl(Listener listener, Access access) : connections_(std::move(listener)), access_(std::move(access)) {}
  ~Impl() { Stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Start(Board& board, const DocumentBuilder* builder) {
    board_ = &board;
    answers_ = std::make_unique<Answers>(access_, board, builder, kMostViewers, kMostOtherViewers);
    connections_.Start(*answers_);
  }
  void Stop() {
    // The board may be gone at a second call.
    if (Board* const board = std::exchange(board_, nullptr); board != nullptr) board->Close();
    connections_.Stop();
  }
  const Address& address() const { return connections_.address(); }
  ServerNumbers numbers() const { return answers_ == nullptr ? ServerNumbers{} : answers_->numbers(); }

 private:
  Connections connections_;
  Access access_;
  Board* board_ = nullptr;
  std::unique_ptr<Answers> answers_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

absl::Status Server::CheckReaders(const Options& options) {
  if (options.address.IsLoopback() || !options.token.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("serving on ", options.address.Text(),
                   " lets other hosts read this run: give a token (--http-token FILE or "
                   "GPUPROBE_HTTP_TOKEN), or serve on 127.0.0.1"));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Listen(const Options& options) {
  const bool loopback = options.address.IsLoopback();
  if (absl::Status s = CheckReaders(options); !s.ok()) return s;
  absl::StatusOr<Listener> listener = Listener::Open(options.address);
  if (!listener.ok()) return listener.status();
  const uint16_t port = listener->address().port;
  return std::unique_ptr<Server>(
      new Server(std::make_unique<Impl>(*std::move(listener), Access(options.token, loopback, port))));
}

void Server::Start(Board& board, const DocumentBuilder* builder) { impl_->Start(board, builder); }

void Server::Stop() { impl_->Stop(); }

std::string Server::Url() const { return absl::StrCat("http://", impl_->address().Text()); }

ServerNumbers Server::numbers() const { return impl_->numbers(); }

}  // namespace gpuprobe::http
