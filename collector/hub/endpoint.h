// The HTTPS of a hub: proves that it knows the secret and that its certificate is its own, and hands on the
// posts of whoever knows the secret, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collector/http/address.h"
#include "collector/http/encryption.h"
#include "collector/hub/secret.h"
#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::hub {

// The jobs behind an endpoint. Called from several threads.
class Jobs {
 public:
  virtual ~Jobs() = default;
  // Whether it is the hub of this job.
  virtual bool Has(const std::string& job) = 0;
  // A post of whoever knows the secret.
  virtual v1::HubAnswer Take(const v1::HubPost& post) = 0;
};

class Endpoint {
 public:
  // `jobs` outlives it. Answers from Start on.
  Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
           std::shared_ptr<const http::Encryption> encryption);
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
