#include "collector/http/fetch.h"

#include <chrono>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collector/http/access.h"
#include "collector/http/library.h"

namespace gpuprobe::http {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

bool IsUrl(const std::string& text) {
  return absl::StartsWith(text, "http://") || absl::StartsWith(text, "https://");
}

absl::StatusOr<std::string> Fetch(const std::string& url, const std::string& path) {
  const std::string server(absl::StripSuffix(url, "/"));
  httplib::Client client(server);
  if (!client.is_valid()) return absl::InvalidArgumentError(absl::StrCat(url, " is not the URL of a server"));
  client.set_connection_timeout(kPatience);
  client.set_read_timeout(kPatience);
  if (const char* token = std::getenv(kTokenVariable); token != nullptr && *token != '\0')
    client.set_bearer_token_auth(token);
  const httplib::Result result = client.Get(path);
  if (!result) return absl::UnavailableError(absl::StrCat(url, " does not answer"));
  constexpr int kOk = 200;
  constexpr int kUnauthorized = 401;
  constexpr int kForbidden = 403;
  if (result->status == kOk) return result->body;
  if (result->status == kUnauthorized || result->status == kForbidden)
    return absl::PermissionDeniedError(absl::StrCat(url, " asks for a token: set ", kTokenVariable));
  return absl::NotFoundError(
      absl::StrCat(url, " answers with HTTP status ", result->status, ": it serves no run of gpuprobe's"));
}

}  // namespace gpuprobe::http
