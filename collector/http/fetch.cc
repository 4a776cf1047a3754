#include "collector/http/fetch.h"

#include <chrono>
#include <cstdlib>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collector/http/access.h"
#include "collector/http/library.h"

namespace gpuprobe::http {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr size_t kMostBytes = size_t{512} << 20;  // of a document
constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;

// "http://n3:9460" and "/jobs/ID" of http://n3:9460/jobs/ID/
std::pair<std::string, std::string> ServerAndPath(const std::string& url) {
  const std::string whole(absl::StripSuffix(url, "/"));
  const size_t host = whole.find("://");
  const size_t path = host == std::string::npos ? host : whole.find('/', host + 3);
  if (path == std::string::npos) return {whole, ""};
  return {whole.substr(0, path), whole.substr(path)};
}

}  // namespace

bool IsUrl(const std::string& text) {
  return absl::StartsWith(text, "http://") || absl::StartsWith(text, "https://");
}

absl::Status FetchInPieces(const std::string& url, const std::string& path,
                           absl::FunctionRef<bool(std::string_view)> take) {
  const auto [server, folder] = ServerAndPath(url);
  httplib::Client client(server);
  if (!client.is_valid()) return absl::InvalidArgumentError(absl::StrCat(url, " is not the URL of a server"));
  client.set_connection_timeout(kPatience);
  client.set_read_timeout(kPatience);
  if (const char* token = std::getenv(kTokenVariable); token != nullptr && *token != '\0')
    client.set_bearer_token_auth(token);
  int status = 0;
  bool refused = false;
  const httplib::Result result = client.Get(
      folder + path,
      [&](const httplib::Response& response) {
        status = response.status;
        return true;
      },
      [&](const char* data, size_t size) {
        refused = status == kOk && !take(std::string_view(data, size));
        return !refused;
      });
  if (refused) return absl::CancelledError("the answer was not taken");
  // Somebody listens there, as a job's hub does, and speaks something else.
  if (!result && status == 0 && result.error() == httplib::Error::Read)
    return absl::NotFoundError(
        absl::StrCat(url, " does not answer over HTTP: it serves no run of gpuprobe's"));
  if (!result)
    return absl::UnavailableError(
        absl::StrCat(url, status == 0 ? " does not answer" : " stopped in the middle of an answer"));
  if (status == kOk) return absl::OkStatus();
  if (status == kUnauthorized || status == kForbidden)
    return absl::PermissionDeniedError(absl::StrCat(url, " asks for a token: set ", kTokenVariable));
  return absl::NotFoundError(
      absl::StrCat(url, " answers with HTTP status ", status, ": it serves no run of gpuprobe's"));
}

absl::StatusOr<std::string> Fetch(const std::string& url, const std::string& path) {
  std::string body;
  bool fits = true;
  absl::Status status = FetchInPieces(url, path, [&](std::string_view piece) {
    fits = body.size() + piece.size() <= kMostBytes;
    if (fits) body.append(piece);
    return fits;
  });
  if (!fits)
    return absl::ResourceExhaustedError(
        absl::StrCat(url, " answers with more than ", kMostBytes >> 20, " MiB"));
  if (!status.ok()) return status;
  return body;
}

}  // namespace gpuprobe::http
