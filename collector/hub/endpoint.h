// The HTTPS of a hub: proves that it knows the secret and that its certificate is its own, and hands on the
// posts of whoever knows the secret, too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "collector/http/address.h"
#include "collector/http/encryption.h"
#include "collector/hub/protocol.h"
#include "collector/hub/quotas.h"
#include "collector/hub/secret.h"
#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::hub {

// What became of a post.
struct Taken {
  v1::HubAnswer answer;
  int status = kOk;               // of HTTP
  std::chrono::seconds again{0};  // with kTooMany: when to come again
};

// The jobs behind an endpoint. Called from several threads.
class Jobs {
 public:
  virtual ~Jobs() = default;
  // Whether it is the hub of this job.
  virtual bool Has(const std::string& job) = 0;
  // A post of whoever knows the secret. `from`: the host that it came from, by its address.
  virtual Taken Take(const v1::HubPost& post, const std::string& from) = 0;
};

class Endpoint {
 public:
  // `jobs` outlives it. Answers from Start on. `bytes_per_s`: what one host may send (quotas.h).
  Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
           std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s = Quotas::kBytesPerS);
  // Ends every connection.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void Start();
  const http::Address& address() const;
  // Requests without the secret, and posts that were refused.
  uint64_t refused() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::hub
