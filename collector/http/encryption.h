// TLS for a server whose clients know its certificate without an authority: it has a key and a certificate of
// its own, made when it starts, and proves by another secret that they are its own (hub/protocol.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

// Of OpenSSL, as it declares them.
struct ssl_ctx_st;
struct ssl_st;
struct x509_st;

namespace gpuprobe::http {

// SHA-256 of a certificate, in hexadecimal; empty: it has none.
std::string FingerprintOf(const x509_st* certificate);

class Encryption {
 public:
  static absl::StatusOr<std::shared_ptr<const Encryption>> Make();
  ~Encryption();
  Encryption(const Encryption&) = delete;
  Encryption& operator=(const Encryption&) = delete;

  const std::string& fingerprint() const { return fingerprint_; }
  ssl_ctx_st* context() const { return context_; }

 private:
  Encryption(ssl_ctx_st* context, std::string fingerprint);

  ssl_ctx_st* context_;
  std::string fingerprint_;
};

// The server's end of an encrypted connection. Used by one thread.
class EncryptedSocket {
 public:
  // What has to happen before it can go on, for the caller to wait for.
  enum class Needs : uint8_t { kNothing, kInput, kRoom, kEnd };

  // `fd` stays the caller's, and does not block. `encryption` outlives it.
  EncryptedSocket(int fd, const Encryption& encryption);
  ~EncryptedSocket();
  EncryptedSocket(const EncryptedSocket&) = delete;
  EncryptedSocket& operator=(const EncryptedSocket&) = delete;

  // kNothing: `done` bytes were read or written, at least one. kEnd: no more can be.
  Needs Read(char* data, size_t size, size_t& done);
  Needs Write(const char* data, size_t size, size_t& done);

 private:
  Needs NeedsAfter(int result) const;

  ssl_st* ssl_;  // null: there was no memory for it
};

}  // namespace gpuprobe::http
