#include "collector/http/access.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collector/http/address.h"

namespace gpuprobe::http {
namespace {

constexpr size_t kLeastTokenBytes = 16;
constexpr size_t kMostTokenBytes = 512;
constexpr std::string_view kBearer = "bearer ";

std::string_view Trim(std::string_view text) {
  constexpr char kBlank[] = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The token of an Authorization header; empty: it has none.
std::string_view BearerOf(std::string_view authorization) {
  const std::string scheme = absl::AsciiStrToLower(std::string(authorization.substr(0, kBearer.size())));
  return scheme == kBearer ? Trim(authorization.substr(kBearer.size())) : "";
}

}  // namespace

bool SameSecret(std::string_view given, std::string_view secret) {
  if (secret.empty()) return false;
  // Each byte of what was given is compared with one of the secret's, whatever came before.
  unsigned difference = given.size() == secret.size() ? 0U : 1U;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(given[i])) ^
                  static_cast<unsigned char>(secret[i % secret.size()]);
  }
  return difference == 0;
}

Access::Access(std::string token, bool loopback, uint16_t port)
    : token_(std::move(token)), loopback_(loopback), cookie_(absl::StrCat("gpuprobe-", port)) {}

bool Access::HasToken(std::string_view cookies) const {
  bool found = false;
  const std::string wanted = cookie_ + "=";
  while (!cookies.empty()) {
    const size_t end = std::min(cookies.find(';'), cookies.size());
    const std::string_view cookie = Trim(cookies.substr(0, end));
    if (cookie.starts_with(wanted)) found |= SameSecret(cookie.substr(wanted.size()), token_);
    cookies.remove_prefix(std::min(end + 1, cookies.size()));
  }
  return found;
}

Verdict Access::Judge(const Claims& claims) const {
  if (loopback_ && !NamesLoopback(claims.host)) return Verdict::kWrongHost;
  if (token_.empty()) return loopback_ ? Verdict::kWelcome : Verdict::kNoToken;
  if (SameSecret(BearerOf(claims.authorization), token_)) return Verdict::kWelcome;
  if (SameSecret(claims.token, token_)) return Verdict::kWelcomeWithCookie;
  return HasToken(claims.cookies) ? Verdict::kWelcome : Verdict::kNoToken;
}

std::string Access::Cookie() const {
  return absl::StrCat(cookie_, "=", token_, "; Path=/; HttpOnly; SameSite=Strict");
}

absl::Status CheckToken(std::string_view token) {
  if (token.size() < kLeastTokenBytes || token.size() > kMostTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the token must have ", kLeastTokenBytes, " to ",
                                                   kMostTokenBytes,
                                                   " characters; to make one: openssl rand -hex 32"));
  }
  const bool plain = std::all_of(token.begin(), token.end(), [](char c) {
    constexpr std::string_view kOthers = "-._~+/";
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || kOthers.find(c) != std::string_view::npos;
  });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError("the token may have letters, digits and - . _ ~ + / only");
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  if ((st.st_mode & (S_IRGRP | S_IROTH)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be read by others, so its token is no secret: chmod 600 ", path));
  }
  char buffer[kMostTokenBytes + 2];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n < 0) return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string_view text(buffer, static_cast<size_t>(n));
  text = Trim(text.substr(0, text.find('\n')));
  if (absl::Status s = CheckToken(text); !s.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", s.message()));
  return std::string(text);
}

}  // namespace gpuprobe::http
