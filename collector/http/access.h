// Who may read the page: on loopback, requests whose Host header names this host; elsewhere, requests with
// the token.
//
// A token comes as "Authorization: Bearer TOKEN" (Prometheus, scripts), or once as /?token=TOKEN, which a
// browser gets back as a cookie that pages of other sites cannot use. Pure, and safe from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpuprobe::http {

// Has the token for whoever serves a run, or reads a served one.
inline constexpr char kTokenVariable[] = "GPUPROBE_HTTP_TOKEN";

// In time that depends on the length of `given` alone.
bool SameSecret(std::string_view given, std::string_view secret);

// What a request claims about its sender; empty: not given.
struct Claims {
  std::string_view host;           // header
  std::string_view authorization;  // header
  std::string_view cookies;        // header
  std::string_view token;          // parameter of the query
};

enum class Verdict : uint8_t {
  kWelcome,
  kWelcomeWithCookie,  // the token came in the URL: set a cookie, and redirect to a URL without it
  kWrongHost,
  kNoToken,
};

class Access {
 public:
  // `token` empty: none is asked for. REQUIRES: one is given where the address is not loopback.
  Access(std::string token, bool loopback, uint16_t port);

  Verdict Judge(const Claims& claims) const;
  bool asks_for_token() const { return !token_.empty(); }
  // The value of Set-Cookie for a browser whose token was right.
  std::string Cookie() const;

 private:
  bool HasToken(std::string_view cookies) const;

  std::string token_;
  bool loopback_;
  std::string cookie_;  // its name: browsers share cookies between ports
};

// The first line of a file that only its owner can read.
absl::StatusOr<std::string> ReadToken(const std::string& path);
// Whether it is long enough, and of characters that fit into a header.
absl::Status CheckToken(std::string_view token);

}  // namespace gpuprobe::http
