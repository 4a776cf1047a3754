// What the server answers: who may ask, which paths there are, and what each gives. Safe from many threads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "collector/http/access.h"
#include "collector/http/board.h"
#include "collector/http/connection.h"
#include "collector/http/metrics.h"
#include "collector/http/service.h"

namespace gpuprobe::http {

class DocumentBuilder;

class Answers : public Service {
 public:
  // `builder` may be null. `most_other_viewers`: limit for all users but the owner.
  Answers(Access access, Board& board, const DocumentBuilder* builder, size_t most_viewers,
          size_t most_other_viewers)
      : access_(std::move(access)),
        board_(board),
        builder_(builder),
        most_viewers_(most_viewers),
        most_other_viewers_(most_other_viewers) {}

  void Answer(const httplib::Request& request, httplib::Response& response, Connection& connection) override;
  void NoteRefused() override { ++refused_; }
  ServerNumbers numbers() const;

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;
  struct Route;
  static const Route kRoutes[];

  void Find(const Request& request, Response& response, Connection& connection);

  void Page(const Request& request, Response& response, Connection& connection);
  void Program(const Request& request, Response& response, Connection& connection);
  void Style(const Request& request, Response& response, Connection& connection);
  void Icon(const Request& request, Response& response, Connection& connection);
  void Report(const Request& request, Response& response, Connection& connection);
  void Ranks(const Request& request, Response& response, Connection& connection);
  void Summary(const Request& request, Response& response, Connection& connection);
  void Text(const Request& request, Response& response, Connection& connection);
  void PageData(const Request& request, Response& response, Connection& connection);
  void Timeline(const Request& request, Response& response, Connection& connection);
  void Status(const Request& request, Response& response, Connection& connection);
  void Files(const Request& request, Response& response, Connection& connection);
  void File(const Request& request, Response& response, Connection& connection);
  void Events(const Request& request, Response& response, Connection& connection);
  void Metrics(const Request& request, Response& response, Connection& connection);
  void Healthy(const Request& request, Response& response, Connection& connection);
  void Ready(const Request& request, Response& response, Connection& connection);
  // Some; null: there are none yet, and that is the answer.
  std::shared_ptr<const Documents> FirstDocuments(Response& response);
  // One of their texts.
  void Document(const Request& request, Response& response, std::string Documents::*text,
                const char* type = kJson);
  std::shared_ptr<const Moment> FirstMoment();

  Access access_;
  Board& board_;
  const DocumentBuilder* builder_;
  size_t most_viewers_;
  size_t most_other_viewers_;
  std::atomic<size_t> streams_ = 0;
  std::array<std::atomic<uint64_t>, ServerNumbers::kClasses> answers_{};
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace gpuprobe::http
