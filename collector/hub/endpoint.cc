#include "collector/hub/endpoint.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/connections.h"
#include "collector/http/library.h"
#include "collector/http/service.h"
#include "collector/hub/keys.h"
#include "collector/hub/protocol.h"

namespace gpuprobe::hub {
namespace {

constexpr char kWrongSignature[] = "the signature is not one of this job's secret";

// On the request that this thread reads.
thread_local Quotas::Verdict admitted;

}  // namespace

class Endpoint::Impl : public http::Service {
 public:
  Impl(Jobs& jobs, Secret secret, http::Listener listener, std::shared_ptr<const http::Encryption> encryption,
       uint64_t bytes_per_s)
      : jobs_(jobs),
        secret_(std::move(secret)),
        fingerprint_(encryption->fingerprint()),
        quotas_(bytes_per_s),
        connections_(std::move(listener), std::move(encryption), Quotas::kConnectionsOfHost) {}

  // Whoever lacks the secret, or has sent too much, gets no byte of a body read.
  size_t MostBodyBytes(const httplib::Request& request, http::Connection& connection) override {
    if (!IsSignedWell(request)) return 0;
    const auto bytes = request.get_header_value<uint64_t>("Content-Length");
    if (bytes > kMostPostBytes) return 0;
    admitted = quotas_.Admit(connection.peer(), bytes, std::chrono::steady_clock::now());
    if (admitted.lease == nullptr) return 0;
    connection.Keep(std::move(admitted.lease));
    return kMostPostBytes;
  }
  void Answer(const httplib::Request& request, httplib::Response& response,
              http::Connection& connection) override {
    if (request.path != kPath) return http::Refuse(response, kNotFound, "there is nothing here");
    if (request.method == "GET") return Prove(request, response);
    const Taken taken = connection.takes_body() ? Take(request, connection) : WhyNotRead(request, connection);
    connection.Keep(nullptr);
    if (!taken.answer.refused().empty()) NoteRefused();
    if (taken.status == kForbidden || taken.status == kBadRequest)
      return http::Refuse(response, taken.status, taken.answer.refused());
    const std::string answer = taken.answer.SerializeAsString();
    response.status = taken.status;
    if (taken.status == kTooMany) response.set_header("Retry-After", std::to_string(taken.again.count()));
    response.set_header(kSignatureHeader,
                        SecretOf(request).Sign(kAnswer, absl::StrCat(request.get_header_value(kDigestHeader),
                                                                     "\n", DigestOf(answer))));
    response.set_content(answer, kProtobuf);
  }
  void NoteRefused() override { ++refused_; }
  uint64_t refused() const { return refused_.load(); }
  http::Connections& connections() { return connections_; }

 private:
  static Taken Refusal(int status, const std::string& why) {
    Taken refusal{.answer = {}, .status = status};
    refusal.answer.set_refused(why);
    return refusal;
  }
  bool IsSignedWell(const httplib::Request& request) {
    return request.path == kPath &&
           SecretOf(request).HasSigned(kPost, request.get_header_value(kDigestHeader),
                                       request.get_header_value(kSignatureHeader));
  }
  Taken Take(const httplib::Request& request, const http::Connection& connection) {
    if (DigestOf(request.body) != request.get_header_value(kDigestHeader))
      return Refusal(kForbidden, kWrongSignature);
    v1::HubPost post;
    if (!post.ParseFromString(request.body)) return Refusal(kBadRequest, "that is no post");
    return jobs_.Take(post, connection.peer());
  }
  Taken WhyNotRead(const httplib::Request& request, http::Connection& connection) {
    const auto bytes = request.get_header_value<uint64_t>("Content-Length");
    if (!IsSignedWell(request) || bytes == 0 || request.has_header("Transfer-Encoding"))
      return Refusal(kForbidden, kWrongSignature);
    if (bytes > kMostPostBytes)
      return Refusal(kTooLarge, absl::StrCat("a post may have ", kMostPostBytes >> 20U, " MiB"));
    if (admitted.may_pass) connection.SetPassing(bytes);
    Taken refusal =
        Refusal(kTooMany, absl::StrCat(connection.peer(), " sends more than ", quotas_.bytes_per_s() >> 10U,
                                       " KiB a second (--host-rate)"));
    refusal.again = admitted.again;
    return refusal;
  }
  // What the host signs with; without munge there is one secret.
  Secret SecretOf(const httplib::Request& request) {
    return secret_.munge() == nullptr ? secret_ : keys_.Find(request.get_header_value(kKeyHeader));
  }
  // Munge opens what the host has sealed: the key to sign with.
  std::optional<Secret> Agree(const httplib::Request& request, httplib::Response& response) {
    if (secret_.munge() == nullptr) return secret_;
    const std::string credential = request.get_header_value(kCredentialHeader);
    if (credential.empty()) {
      http::Refuse(response, kForbidden, "this hub knows its hosts by munge");
      return std::nullopt;
    }
    const Munge::Opened opened = secret_.munge()->Unseal(credential);
    if (opened.error != Munge::kNone) {
      response.set_header(kMungeErrorHeader, std::to_string(opened.error));
      http::Refuse(response, kForbidden, "munge does not open the credential for this hub");
      return std::nullopt;
    }
    Secret key(opened.text, secret_.origin());
    keys_.Add(key);
    return key;
  }
  void Prove(const httplib::Request& request, httplib::Response& response) {
    const std::string job = request.get_param_value("job");
    response.set_header(kWayHeader, secret_.way());
    if (!jobs_.Has(job)) return http::Refuse(response, kConflict, "this is the hub of another job");
    const std::optional<Secret> secret = Agree(request, response);
    if (!secret.has_value()) return NoteRefused();
    response.status = kOk;
    const std::string text =
        ProofText(request.get_param_value("nonce"), job, connections_.address().port, fingerprint_);
    response.set_header(kSignatureHeader, secret->Sign(kProof, text));
    response.set_content("{}\n", http::kJson);
  }

  Jobs& jobs_;
  const Secret secret_;
  const std::string fingerprint_;
  std::atomic<uint64_t> refused_ = 0;
  Quotas quotas_;
  Keys keys_;
  http::Connections connections_;  // the last member: its threads use the others
};

Endpoint::Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
                   std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s)
    : impl_(std::make_unique<Impl>(jobs, std::move(secret), std::move(listener), std::move(encryption),
                                   bytes_per_s)) {}

Endpoint::~Endpoint() { impl_->connections().Stop(); }

void Endpoint::Start() { impl_->connections().Start(*impl_); }

const http::Address& Endpoint::address() const { return impl_->connections().address(); }

uint64_t Endpoint::refused() const { return impl_->refused(); }

}  // namespace gpuprobe::hub
