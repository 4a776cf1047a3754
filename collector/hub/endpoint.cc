#include "collector/hub/endpoint.h"

#include <array>
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

constexpr size_t kOwnKeyBytes = 32;
constexpr char kWrongSignature[] = "the signature is not one of this job's secret";

// On the request that this thread reads.
thread_local Quotas::Verdict admitted;

}  // namespace

class Endpoint::Impl : public http::Service {
 public:
  // `users` null: all hosts have `secret`.
  Impl(Jobs& jobs, Secret secret, const Users* users, http::Listener listener,
       std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s)
      : jobs_(jobs),
        secret_(std::move(secret)),
        users_(users),
        fingerprint_(encryption->fingerprint()),
        quotas_(bytes_per_s),
        connections_(std::move(listener), std::move(encryption), Quotas::kConnectionsOfHost) {}

  // Whoever lacks the secret, or has sent too much, gets no byte of a body read.
  size_t MostBodyBytes(const httplib::Request& request, http::Connection& connection) override {
    if (!IsSignedWell(request)) return 0;
    const auto bytes = request.get_header_value<uint64_t>("Content-Length");
    if (bytes > kMostPostBytes) return 0;
    const std::string user = SignerOf(request).name;
    admitted = quotas_.Admit(user.empty() ? connection.peer() : absl::StrCat(user, "@", connection.peer()),
                             bytes, std::chrono::steady_clock::now());
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
    if (!taken.answer.refused().empty()) Count(WhyRefused(taken.status, connection.takes_body()));
    if (taken.status == kForbidden || taken.status == kBadRequest)
      return http::Refuse(response, taken.status, taken.answer.refused());
    const std::string answer = taken.answer.SerializeAsString();
    response.status = taken.status;
    if (taken.status == kTooMany) response.set_header("Retry-After", std::to_string(taken.again.count()));
    response.set_header(kSignatureHeader, SignerOf(request).secret.Sign(
                                              kAnswer, absl::StrCat(request.get_header_value(kDigestHeader),
                                                                    "\n", DigestOf(answer))));
    response.set_content(answer, kProtobuf);
  }
  void NoteRefused() override { Count(Refused::kOther); }
  EndpointNumbers numbers() const {
    EndpointNumbers numbers{.posts = posts_.load(), .bytes = bytes_.load()};
    for (size_t i = 0; i < refused_.size(); ++i) numbers.refused[i] = refused_[i].load();
    return numbers;
  }
  http::Connections& connections() { return connections_; }

 private:
  void Count(Refused why) { ++refused_[static_cast<size_t>(why)]; }
  // `read`: the post was.
  static Refused WhyRefused(int status, bool read) {
    switch (status) {
      case kForbidden:
        return Refused::kSecret;
      case kTooMany:
        return read ? Refused::kHostJobs : Refused::kHostRate;
      case kTooLarge:
        return read ? Refused::kHostDisk : Refused::kMalformed;
      case kInsufficientRoom:
        return Refused::kNoRoom;
      case kBadRequest:
        return Refused::kMalformed;
      default:
        return Refused::kOther;
    }
  }
  static Taken Refusal(int status, const std::string& why) {
    Taken refusal{.answer = {}, .status = status};
    refusal.answer.set_refused(why);
    return refusal;
  }
  bool IsSignedWell(const httplib::Request& request) {
    return request.path == kPath &&
           SignerOf(request).secret.HasSigned(kPost, request.get_header_value(kDigestHeader),
                                              request.get_header_value(kSignatureHeader));
  }
  Taken Take(const httplib::Request& request, const http::Connection& connection) {
    ++posts_;
    bytes_ += request.body.size();
    if (DigestOf(request.body) != request.get_header_value(kDigestHeader))
      return Refusal(kForbidden, kWrongSignature);
    const std::string user = SignerOf(request).name;
    if (users_ != nullptr && user.empty()) return Refusal(kForbidden, kWrongSignature);  // no more
    v1::HubPost post;
    if (!post.ParseFromString(request.body)) return Refusal(kBadRequest, "that is no post");
    return jobs_.Take(post, {.host = connection.peer(), .user = user});
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
  // What the host signs with, and whose that is; without munge and users there is one secret.
  User SignerOf(const httplib::Request& request) {
    const std::string key = request.get_header_value(kKeyHeader);
    if (users_ != nullptr) return users_->Find(key);
    return {.name = "", .secret = secret_.munge() == nullptr ? secret_ : keys_.Find(key), .read_token = ""};
  }
  // Munge opens what the host has sealed: the key to sign with.
  std::optional<Secret> Agree(const httplib::Request& request, httplib::Response& response) {
    if (users_ != nullptr) {
      const User user = SignerOf(request);
      if (!user.name.empty()) return user.secret;
      http::Refuse(response, kForbidden, "this hub knows no user by that key");
      return std::nullopt;
    }
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
    response.set_header(kWayHeader, users_ == nullptr ? secret_.way() : Secret::kUserWay);
    if (!jobs_.Has(job)) return http::Refuse(response, kConflict, "this is the hub of another job");
    const std::optional<Secret> secret = Agree(request, response);
    if (!secret.has_value()) return Count(Refused::kSecret);
    response.status = kOk;
    const std::string text =
        ProofText(request.get_param_value("nonce"), job, connections_.address().port, fingerprint_);
    response.set_header(kSignatureHeader, secret->Sign(kProof, text));
    response.set_content("{}\n", http::kJson);
  }

  Jobs& jobs_;
  const Secret secret_;
  const Users* const users_;
  const std::string fingerprint_;
  std::atomic<uint64_t> posts_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::array<std::atomic<uint64_t>, kRefusedWords.size()> refused_{};
  Quotas quotas_;
  Keys keys_;
  http::Connections connections_;  // the last member: its threads use the others
};

Endpoint::Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
                   std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s)
    : impl_(std::make_unique<Impl>(jobs, std::move(secret), nullptr, std::move(listener),
                                   std::move(encryption), bytes_per_s)) {}

// Nothing is signed with a secret of the hub's own.
Endpoint::Endpoint(Jobs& jobs, const Users& users, http::Listener listener,
                   std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s)
    : impl_(std::make_unique<Impl>(jobs, Secret(RandomHex(kOwnKeyBytes)), &users, std::move(listener),
                                   std::move(encryption), bytes_per_s)) {}

Endpoint::~Endpoint() { impl_->connections().Stop(); }

void Endpoint::Start() { impl_->connections().Start(*impl_); }

const http::Address& Endpoint::address() const { return impl_->connections().address(); }

EndpointNumbers Endpoint::numbers() const { return impl_->numbers(); }

}  // namespace gpuprobe::hub
