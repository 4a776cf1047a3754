#include "collector/http/answers.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/http/document_builder.h"
#include "collector/http/open_metrics.h"
#include "collector/page/page.h"
#include "collector/render/live_json.h"

namespace gpuprobe::http {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDocumentsPatience{5000};
constexpr milliseconds kTimelinePatience{20'000};  // logs are read
constexpr milliseconds kMomentPatience{3000};
constexpr milliseconds kHeartbeat{15'000};  // of a stream in which nothing happens
constexpr milliseconds kLinger{5000};       // after the end of the run, for a page that still fetches
constexpr milliseconds kLingerPoll{20};
constexpr size_t kPieceBytes = size_t{256} << 10;
constexpr char kText[] = "text/plain; charset=utf-8";
// Allows no other origin; the charts set styles of elements.
constexpr char kPagePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr char kDataPolicy[] = "default-src 'none'; frame-ancestors 'none'";

// Sends `text`, which `owner` keeps alive, without a copy per reader.
template <typename Owner>
void Share(httplib::Response& response, Owner owner, std::string_view text, const char* type) {
  if (text.empty()) return response.set_content("", type);
  response.set_content_provider(
      text.size(), type,
      [owner = std::move(owner), text](size_t offset, size_t length, httplib::DataSink& sink) {
        const std::string_view piece = text.substr(offset, std::min(length, kPieceBytes));
        return sink.write(piece.data(), piece.size());
      });
}

std::string_view View(const std::string& text) { return text; }

bool IsAt(const std::string& path, std::string_view route) {
  return path == route || (route.size() > 1 && route.back() == '/' && path.starts_with(route));
}

const std::string& StatusText(const Moment& moment) {
  return moment.status_json.Get([&] { return render::LiveJson(moment.status); });
}

// A browser's stream: what is new, and what it has seen.
struct Stream {
  Board& board;
  std::atomic<size_t>& streams;
  Board::Seen seen;
  bool greeted = false;
  std::optional<Board::Clock::time_point> hang_up_at;  // set once the run's end was sent

  Stream(Board& its_board, std::atomic<size_t>& all) : board(its_board), streams(all) { board.Enter(); }
  ~Stream() {
    board.Leave();
    --streams;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // False: it is over.
  bool Next(const Connection& connection, httplib::DataSink& sink) {
    if (hang_up_at.has_value()) return Linger(connection, sink);
    const Board::News news = board.Await(seen, kHeartbeat);
    std::string text = greeted ? "" : "retry: 2000\n\n";
    greeted = true;
    if (news.moment != nullptr)
      absl::StrAppend(&text, "event: status\ndata: ", StatusText(*news.moment), "\n\n");
    if (news.documents != nullptr)
      absl::StrAppend(&text, "event: documents\ndata: {\"version\":", news.documents->version, "}\n\n");
    if (news.ended) absl::StrAppend(&text, "event: end\ndata: {}\n\n");
    if (text.empty()) text = ": nothing new\n\n";
    if (connection.IsGone() || !sink.write(text.data(), text.size())) return false;
    if (news.ended) hang_up_at = Board::Clock::now() + kLinger;
    if (news.closed) sink.done();
    return true;
  }
  // Waits until the page has fetched the last documents and disconnects.
  bool Linger(const Connection& connection, httplib::DataSink& sink) const {
    std::this_thread::sleep_for(kLingerPoll);
    if (Board::Clock::now() >= *hang_up_at) sink.done();
    return !connection.IsGone();
  }
};

}  // namespace

struct Answers::Route {
  std::string_view path;  // that ends with a slash: and all below it
  void (Answers::*answer)(const Request&, Response&, Connection&);
  bool open = false;  // also to those without a token
};

const Answers::Route Answers::kRoutes[] = {
    {"/", &Answers::Page},
    {"/page.js", &Answers::Program},
    {"/page.css", &Answers::Style},
    {"/favicon.ico", &Answers::Icon},
    {"/api/report", &Answers::Report},
    {"/api/ranks", &Answers::Ranks},
    {"/api/summary", &Answers::Summary},
    {"/api/text", &Answers::Text},
    {"/api/page-data", &Answers::PageData},
    {"/api/timeline", &Answers::Timeline},
    {"/api/status", &Answers::Status},
    {kFilesPath, &Answers::Files},
    {"/api/files/", &Answers::File},
    {"/events", &Answers::Events},
    {"/metrics", &Answers::Metrics},
    {"/healthz", &Answers::Healthy, true},
    {"/readyz", &Answers::Ready, true},
};

void Answers::Answer(const Request& request, Response& response, Connection& connection) {
  response.status = 200;
  Find(request, response, connection);
  if (!response.has_header("Content-Security-Policy"))
    response.set_header("Content-Security-Policy", kDataPolicy);
  const auto digit = static_cast<size_t>(response.status / 100);
  ++answers_[std::min(digit, answers_.size() - 1)];
}

void Answers::Find(const Request& request, Response& response, Connection& connection) {
  if (request.method != "GET" && request.method != "HEAD") {
    response.set_header("Allow", "GET, HEAD");
    return Refuse(response, 405, "there is only GET and HEAD");
  }
  const auto* route = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [&](const Route& each) { return IsAt(request.path, each.path); });
  const bool open = route != std::end(kRoutes) && route->open;
  if (connection.is_brief() && !open) {
    NoteRefused();
    response.set_header("Retry-After", "5");
    return Refuse(response, 503, "there are too many connections; only signs of life are answered");
  }
  if (!open && !LetIn(access_, request, response)) return;
  if (route == std::end(kRoutes)) return Refuse(response, 404, "there is nothing here");
  (this->*route->answer)(request, response, connection);
}

void Answers::Page(const Request&, Response& response, Connection&) {
  response.set_header("Content-Security-Policy", kPagePolicy);
  response.set_content(page::LivePage(), "text/html; charset=utf-8");
}

void Answers::Program(const Request&, Response& response, Connection&) {
  Share(response, nullptr, page::LiveProgram(), "text/javascript; charset=utf-8");
}

void Answers::Style(const Request&, Response& response, Connection&) {
  Share(response, nullptr, page::LiveStyle(), "text/css; charset=utf-8");
}

void Answers::Icon(const Request&, Response& response, Connection&) { response.status = 204; }

std::shared_ptr<const Documents> Answers::FirstDocuments(Response& response) {
  std::shared_ptr<const Documents> documents = board_.FreshDocuments(kDocumentsPatience);
  if (documents == nullptr) {
    response.set_header("Retry-After", "1");
    Refuse(response, 503, "no process has reported yet");
  }
  return documents;
}

void Answers::Document(const Request& request, Response& response, std::string Documents::*text,
                       const char* type) {
  const std::shared_ptr<const Documents> documents = FirstDocuments(response);
  if (documents == nullptr) return;
  if (((*documents).*text).empty())
    return Refuse(response, 404, "everything about the ranks is in /api/report");
  const std::string tag = absl::StrCat("\"", documents->version, "\"");
  response.set_header("ETag", tag);
  if (request.get_header_value("If-None-Match") == tag) {
    response.status = 304;
    return;
  }
  Share(response, documents, View((*documents).*text), type);
}

void Answers::Report(const Request& request, Response& response, Connection&) {
  Document(request, response, &Documents::report);
}
void Answers::Ranks(const Request& request, Response& response, Connection&) {
  Document(request, response, &Documents::ranks);
}
void Answers::Summary(const Request& request, Response& response, Connection&) {
  Document(request, response, &Documents::summary);
}

void Answers::Text(const Request& request, Response& response, Connection&) {
  Document(request, response, &Documents::text, kText);
}
void Answers::PageData(const Request& request, Response& response, Connection&) {
  Document(request, response, &Documents::page_data);
}

void Answers::Timeline(const Request& request, Response& response, Connection&) {
  uint64_t step = 0;
  if (!absl::SimpleAtoi(request.get_param_value("step"), &step))
    return Refuse(response, 400, "step is the number of a step: /api/timeline?step=N");
  const std::shared_ptr<const Documents> documents = board_.DocumentsWith(step, kTimelinePatience);
  if (documents == nullptr) {
    response.set_header("Retry-After", "1");
    return Refuse(response, 503, "no process has reported yet");
  }
  response.set_content(absl::StrCat("{\"step\": ", step, ", \"version\": ", documents->version, "}\n"),
                       kJson);
}

void Answers::Files(const Request&, Response& response, Connection&) {
  const std::shared_ptr<const Documents> documents = FirstDocuments(response);
  if (documents != nullptr) response.set_content(FileList(documents->files), kJson);
}

void Answers::File(const Request& request, Response& response, Connection&) {
  const std::shared_ptr<const Documents> documents = FirstDocuments(response);
  if (documents == nullptr) return;
  const std::string_view name = std::string_view(request.path).substr(sizeof(kFilesPath));
  const auto file = std::find_if(documents->files.begin(), documents->files.end(),
                                 [&](const ServedFile& each) { return each.name == name; });
  if (file == documents->files.end()) return Refuse(response, 404, "this run has no such file");
  uint64_t from = 0;
  if (request.has_param("from") && !absl::SimpleAtoi(request.get_param_value("from"), &from))
    return Refuse(response, 400, "from is the number of a byte");
  AnswerWithFile(*file, from, response);
}

// Right after the start there is none for a moment.
std::shared_ptr<const Moment> Answers::FirstMoment() {
  Board::Seen seen;
  const Board::Clock::time_point until = Board::Clock::now() + kMomentPatience;
  for (;;) {
    std::shared_ptr<const Moment> moment = board_.moment();
    const auto left = std::chrono::duration_cast<milliseconds>(until - Board::Clock::now());
    if (moment != nullptr || left.count() <= 0 || board_.Await(seen, left).closed) return moment;
  }
}

void Answers::Status(const Request&, Response& response, Connection&) {
  const std::shared_ptr<const Moment> moment = FirstMoment();
  if (moment == nullptr) return Refuse(response, 503, "the collector has not begun");
  Share(response, moment, View(StatusText(*moment)), kJson);
}

void Answers::Metrics(const Request& request, Response& response, Connection&) {
  const std::shared_ptr<const Moment> moment = FirstMoment();
  if (moment == nullptr) return Refuse(response, 503, "the collector has not begun");
  const bool open = PrefersOpenMetrics(request.get_header_value("Accept"));
  const MetricsFormat format = open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus;
  const LazyText& lazy = open ? moment->open_metrics : moment->metrics;
  const std::string& text = lazy.Get([&] { return MetricsText(*moment, format); });
  response.set_header("Vary", "Accept");
  response.set_content(absl::StrCat(text, ServerMetricsText(numbers(), format), open ? kOpenMetricsEnd : ""),
                       open ? kOpenMetricsType : kMetricsType);
}

void Answers::Events(const Request& request, Response& response, Connection& connection) {
  if (request.method == "HEAD") return response.set_content("", "text/event-stream");
  const size_t most = connection.is_owners() ? most_viewers_ : most_other_viewers_;
  if (++streams_ > most) {
    --streams_;
    response.set_header("Retry-After", "5");
    return Refuse(response, 503, absl::StrCat("there are ", most, " viewers already"));
  }
  connection.LetAnswerGoOn();
  const auto stream = std::make_shared<Stream>(board_, streams_);
  response.set_chunked_content_provider("text/event-stream",
                                        [stream, &connection](size_t /*offset*/, httplib::DataSink& sink) {
                                          return stream->Next(connection, sink);
                                        });
}

void Answers::Healthy(const Request&, Response& response, Connection&) {
  response.set_content("ok\n", kText);
}

void Answers::Ready(const Request&, Response& response, Connection&) {
  if (board_.moment() != nullptr && board_.IsAlive()) return response.set_content("ready\n", kText);
  response.status = 503;
  response.set_content(board_.moment() == nullptr ? "the collector has not begun\n"
                                                  : absl::StrCat("the collector has done nothing for ",
                                                                 Board::kStuck.count(), " s\n"),
                       kText);
}

ServerNumbers Answers::numbers() const {
  ServerNumbers numbers;
  numbers.viewers = streams_;
  for (size_t i = 0; i < answers_.size(); ++i) numbers.answers[i] = answers_[i];
  numbers.refused = refused_;
  if (builder_ != nullptr) {
    numbers.documents_made = builder_->made();
    numbers.documents_ns = builder_->made_ns();
  }
  return numbers;
}

}  // namespace gpuprobe::http
