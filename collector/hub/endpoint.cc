#include "collector/hub/endpoint.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/http/connections.h"
#include "collector/http/library.h"
#include "collector/http/service.h"
#include "collector/hub/protocol.h"

namespace gpuprobe::hub {

class Endpoint::Impl : public http::Service {
 public:
  Impl(Jobs& jobs, Secret secret, http::Listener listener, std::shared_ptr<const http::Encryption> encryption)
      : jobs_(jobs),
        secret_(std::move(secret)),
        fingerprint_(encryption->fingerprint()),
        connections_(std::move(listener), std::move(encryption)) {}

  // Whoever lacks the secret gets no byte of a body read.
  size_t MostBodyBytes(const httplib::Request& request) override {
    const bool signed_well =
        request.path == kPath && secret_.HasSigned(kPost, request.get_header_value(kDigestHeader),
                                                   request.get_header_value(kSignatureHeader));
    return signed_well ? kMostPostBytes : 0;
  }
  void Answer(const httplib::Request& request, httplib::Response& response,
              http::Connection& connection) override {
    if (request.path != kPath) return http::Refuse(response, kNotFound, "there is nothing here");
    if (request.method == "GET") return Prove(request, response);
    const std::string digest = request.get_header_value(kDigestHeader);
    if (!connection.takes_body() || DigestOf(request.body) != digest) {
      NoteRefused();
      return http::Refuse(response, kForbidden, "the signature is not one of this job's secret");
    }
    v1::HubPost post;
    if (!post.ParseFromString(request.body)) {
      NoteRefused();
      return http::Refuse(response, kBadRequest, "that is no post");
    }
    const v1::HubAnswer taken = jobs_.Take(post);
    if (!taken.refused().empty()) NoteRefused();
    const std::string answer = taken.SerializeAsString();
    response.status = kOk;
    response.set_header(kSignatureHeader,
                        secret_.Sign(kAnswer, absl::StrCat(digest, "\n", DigestOf(answer))));
    response.set_content(answer, kProtobuf);
  }
  void NoteRefused() override { ++refused_; }
  uint64_t refused() const { return refused_.load(); }
  http::Connections& connections() { return connections_; }

 private:
  void Prove(const httplib::Request& request, httplib::Response& response) const {
    const std::string job = request.get_param_value("job");
    if (!jobs_.Has(job)) return http::Refuse(response, kConflict, "this is the hub of another job");
    response.status = kOk;
    const std::string text =
        ProofText(request.get_param_value("nonce"), job, connections_.address().port, fingerprint_);
    response.set_header(kSignatureHeader, secret_.Sign(kProof, text));
    response.set_content("{}\n", http::kJson);
  }

  Jobs& jobs_;
  const Secret secret_;
  const std::string fingerprint_;
  std::atomic<uint64_t> refused_ = 0;
  http::Connections connections_;  // the last member: its threads use the others
};

Endpoint::Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
                   std::shared_ptr<const http::Encryption> encryption)
    : impl_(std::make_unique<Impl>(jobs, std::move(secret), std::move(listener), std::move(encryption))) {}

Endpoint::~Endpoint() { impl_->connections().Stop(); }

void Endpoint::Start() { impl_->connections().Start(*impl_); }

const http::Address& Endpoint::address() const { return impl_->connections().address(); }

uint64_t Endpoint::refused() const { return impl_->refused(); }

}  // namespace gpuprobe::hub
