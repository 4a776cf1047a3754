#include "collector/clickhouse/client.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "collector/http/library.h"

namespace gpuprobe::clickhouse {
namespace {

constexpr std::chrono::seconds kConnectPatience{5};
constexpr std::chrono::seconds kAnswerPatience{60};
constexpr size_t kMostWords = 300;
constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr int kFirstServerError = 500;

// Of ClickHouse's error codes.
enum Code : int {
  kCannotParseText = 6,
  kNoSuchColumn = 16,
  kNotFoundColumn = 10,
  kCannotReadAllData = 33,
  kCannotParseInput = 27,
  kUnknownIdentifier = 47,
  kTypeMismatch = 53,
  kUnknownTable = 60,
  kUnknownDatabase = 81,
  kIncorrectData = 117,
  kUnknownUser = 192,
  kWrongPassword = 193,
  kRequiredPassword = 194,
  kAccessDenied = 497,
  kAuthenticationFailed = 516,
  kZstdDecoderFailed = 561
};

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.') {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return out;
}

// The first line of what the server says, without its version and stack.
std::string WordsOf(const std::string& body) {
  std::string words = body.substr(0, body.find('\n'));
  if (words.size() > kMostWords) words = absl::StrCat(words.substr(0, kMostWords), "...");
  return absl::CHexEscape(absl::StripAsciiWhitespace(words));
}

absl::Status ErrorOf(const httplib::Response& response) {
  int code = 0;
  (void)absl::SimpleAtoi(response.get_header_value("X-ClickHouse-Exception-Code"), &code);
  const std::string words =
      response.body.empty() ? absl::StrCat("HTTP status ", response.status) : WordsOf(response.body);
  switch (code) {
    case kUnknownUser:
    case kWrongPassword:
    case kRequiredPassword:
    case kAccessDenied:
    case kAuthenticationFailed:
      return absl::PermissionDeniedError(words);
    case kUnknownTable:
    case kUnknownDatabase:
    case kNoSuchColumn:
    case kNotFoundColumn:
    case kUnknownIdentifier:
      return absl::NotFoundError(words);
    case kCannotParseText:
    case kCannotParseInput:
    case kCannotReadAllData:
    case kTypeMismatch:
    case kIncorrectData:
    case kZstdDecoderFailed:
      return absl::InvalidArgumentError(words);
    default:
      break;
  }
  if (response.status == kUnauthorized || response.status == kForbidden)
    return absl::PermissionDeniedError(words);
  if (code == 0 && response.status == kNotFound) return absl::NotFoundError(words);
  return response.status >= kFirstServerError ? absl::UnavailableError(words) : absl::InternalError(words);
}

// A variable's value; it is not handed on to programs that are started.
std::string TakeVariable(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  unsetenv(name);
  return text;
}

}  // namespace

absl::StatusOr<Server> Server::Parse(const std::string& url) {
  constexpr char kForm[] = "must be http://HOST:8123 or https://HOST:8443";
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://") && !absl::ConsumePrefix(&rest, "https://"))
    return absl::InvalidArgumentError(absl::StrCat("'", url, "' ", kForm));
  absl::ConsumeSuffix(&rest, "/");
  if (absl::StrContains(rest, "@"))
    return absl::InvalidArgumentError(
        "a command line is there for all users to see: set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD instead");
  const bool fits = !rest.empty() && std::all_of(rest.begin(), rest.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
  });
  if (!fits) return absl::InvalidArgumentError(absl::StrCat("'", url, "' ", kForm));
  Server server;
  server.url = std::string(absl::StripSuffix(url, "/"));
  server.user = TakeVariable("CLICKHOUSE_USER");
  server.password = TakeVariable("CLICKHOUSE_PASSWORD");
  return server;
}

class Client::Impl {
 public:
  explicit Impl(const Server& server) : url_(server.url), client_(server.url) {
    client_.set_connection_timeout(kConnectPatience);
    client_.set_read_timeout(kAnswerPatience);
    client_.set_write_timeout(kAnswerPatience);
    client_.set_keep_alive(true);
    client_.set_tcp_nodelay(true);
    if (!server.user.empty()) headers_.emplace("X-ClickHouse-User", server.user);
    if (!server.password.empty()) headers_.emplace("X-ClickHouse-Key", server.password);
  }

  absl::StatusOr<std::string> Post(const std::string& path, std::string_view body, bool compressed) {
    httplib::Headers headers = headers_;
    if (compressed) headers.emplace("Content-Encoding", "zstd");
    const httplib::Result result =
        client_.Post(path, headers, body.data(), body.size(), "application/octet-stream");
    if (!result)
      return absl::UnavailableError(
          absl::StrCat(url_, " does not answer (", httplib::to_string(result.error()), ")"));
    const bool failed = result->status != kOk || result->has_header("X-ClickHouse-Exception-Code");
    if (failed) return ErrorOf(*result);
    return result->body;
  }
  void Stop() { client_.stop(); }

 private:
  const std::string url_;
  httplib::Client client_;
  httplib::Headers headers_;
};

Client::Client(const Server& server) : impl_(std::make_unique<Impl>(server)) {}
Client::~Client() = default;
void Client::Stop() { impl_->Stop(); }

absl::StatusOr<std::string> Client::Version() {
  absl::StatusOr<std::string> answer = Ask("SELECT version()");
  if (!answer.ok()) return answer.status();
  const std::string version(absl::StripAsciiWhitespace(*answer));
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0;
  int minor = 0;
  if (parts.size() < 2 || !absl::SimpleAtoi(parts[0], &major) || !absl::SimpleAtoi(parts[1], &minor))
    return absl::FailedPreconditionError(
        absl::StrCat("what answers there is no ClickHouse: its version is '", WordsOf(version), "'"));
  if (std::pair(major, minor) < std::pair(kLeastMajor, kLeastMinor))
    return absl::FailedPreconditionError(absl::StrCat("ClickHouse ", version, " is too old: gpuprobe needs ",
                                                      kLeastMajor, ".", kLeastMinor, " or newer"));
  return version;
}

absl::StatusOr<std::string> Client::Ask(const std::string& sql) { return impl_->Post("/", sql, false); }

absl::Status Client::Insert(const std::string& sql, const std::string& token, std::string_view rows) {
  return impl_
      ->Post(absl::StrCat("/?insert_deduplication_token=", Escaped(token), "&query=", Escaped(sql)), rows,
             true)
      .status();
}

}  // namespace gpuprobe::clickhouse
