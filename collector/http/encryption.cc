#include "collector/http/encryption.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace gpuprobe::http {
namespace {

constexpr long kValidS = 10L * 365 * 24 * 3600;  // NOLINT(google-runtime-int): OpenSSL's type
constexpr long kSlackS = 24L * 3600;             // NOLINT(google-runtime-int): clocks may be apart

// A certificate for this key, signed with it; null: no memory.
X509* CertificateFor(EVP_PKEY* key) {
  X509* certificate = X509_new();
  if (certificate == nullptr) return nullptr;
  X509_NAME* const name = X509_get_subject_name(certificate);
  constexpr char kName[] = "gpuprobe";
  const bool well =
      X509_set_version(certificate, X509_VERSION_3) == 1 &&
      ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(certificate), -kSlackS) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(certificate), kValidS) != nullptr &&
      X509_set_pubkey(certificate, key) == 1 &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(kName), -1,
                                 -1, 0) == 1 &&
      X509_set_issuer_name(certificate, name) == 1 && X509_sign(certificate, key, EVP_sha256()) != 0;
  if (well) return certificate;
  X509_free(certificate);
  return nullptr;
}

}  // namespace

std::string FingerprintOf(const x509_st* certificate) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (certificate == nullptr || X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return "";
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest.data()), size));
}

Encryption::Encryption(ssl_ctx_st* context, std::string fingerprint)
    : context_(context), fingerprint_(std::move(fingerprint)) {}

Encryption::~Encryption() { SSL_CTX_free(context_); }

absl::StatusOr<std::shared_ptr<const Encryption>> Encryption::Make() {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  const auto free_key = absl::MakeCleanup([key] { EVP_PKEY_free(key); });
  X509* const certificate = key == nullptr ? nullptr : CertificateFor(key);
  const auto free_certificate = absl::MakeCleanup([certificate] { X509_free(certificate); });
  SSL_CTX* const context = certificate == nullptr ? nullptr : SSL_CTX_new(TLS_server_method());
  const bool well = context != nullptr && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_use_certificate(context, certificate) == 1 &&
                    SSL_CTX_use_PrivateKey(context, key) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!well) {
    SSL_CTX_free(context);
    ERR_clear_error();
    return absl::UnavailableError("cannot make a key for encrypted connections");
  }
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return std::shared_ptr<const Encryption>(new Encryption(context, FingerprintOf(certificate)));
}

EncryptedSocket::EncryptedSocket(int fd, const Encryption& encryption) : ssl_(SSL_new(encryption.context())) {
  if (ssl_ == nullptr) return;
  SSL_set_accept_state(ssl_);
  SSL_set_fd(ssl_, fd);
}

EncryptedSocket::~EncryptedSocket() { SSL_free(ssl_); }

EncryptedSocket::Needs EncryptedSocket::NeedsAfter(int result) const {
  const int error = SSL_get_error(ssl_, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return Needs::kInput;
  return error == SSL_ERROR_WANT_WRITE ? Needs::kRoom : Needs::kEnd;
}

EncryptedSocket::Needs EncryptedSocket::Read(char* data, size_t size, size_t& done) {
  if (ssl_ == nullptr) return Needs::kEnd;
  const int result = SSL_read_ex(ssl_, data, size, &done);
  return result == 1 ? Needs::kNothing : NeedsAfter(result);
}

EncryptedSocket::Needs EncryptedSocket::Write(const char* data, size_t size, size_t& done) {
  if (ssl_ == nullptr) return Needs::kEnd;
  const int result = SSL_write_ex(ssl_, data, size, &done);
  return result == 1 ? Needs::kNothing : NeedsAfter(result);
}

}  // namespace gpuprobe::http
