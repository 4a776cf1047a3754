// The HTTPS of a hub: proves that it knows the secret and that its certificate is its own, and hands on the
// posts of whoever knows the secret, too.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>

#include "collector/http/address.h"
#include "collector/http/encryption.h"
#include "collector/hub/protocol.h"
#include "collector/hub/quotas.h"
#include "collector/hub/secret.h"
#include "collector/hub/users.h"
#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::hub {

// What became of a post.
struct Taken {
  v1::HubAnswer answer;
  int status = kOk;               // of HTTP
  std::chrono::seconds again{0};  // with kTooMany: when to come again
};

// Why something was refused.
enum class Refused : uint8_t {
  kSecret,     // the signature, or munge's credential, is none of this hub's
  kHostRate,   // the host sends more than it may in a second
  kHostJobs,   // the host has as many jobs as it may have, or the hub has
  kHostDisk,   // the host has as much in the job as it may have
  kNoRoom,     // the disk is full, or the host's share of it
  kMalformed,  // that is no post, or one that is too long
  kOther,      // the answer says why
};
inline constexpr std::array<const char*, 7> kRefusedWords = {"secret",  "host_rate", "host_jobs", "host_disk",
                                                             "no_room", "malformed", "other"};

// Since it began.
struct EndpointNumbers {
  uint64_t posts = 0;  // that were read, whatever became of them
  uint64_t bytes = 0;  // of these
  std::array<uint64_t, kRefusedWords.size()> refused{};
};

// Who posts: a host, by its address, and the user whose token it signs with; empty: the hub has one user.
struct Sender {
  std::string host;
  std::string user = {};

  bool operator==(const Sender&) const = default;
  bool operator<(const Sender& other) const {
    return std::tie(user, host) < std::tie(other.user, other.host);
  }
};

// The jobs behind an endpoint. Called from several threads.
class Jobs {
 public:
  virtual ~Jobs() = default;
  // Whether it is the hub of this job.
  virtual bool Has(const std::string& job) = 0;
  // A post of whoever knows the secret.
  virtual Taken Take(const v1::HubPost& post, const Sender& from) = 0;
};

class Endpoint {
 public:
  // `jobs` outlives it. Answers from Start on. `bytes_per_s`: what one host may send (quotas.h).
  Endpoint(Jobs& jobs, Secret secret, http::Listener listener,
           std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s = Quotas::kBytesPerS);
  // The same for several users, who outlive it, too.
  Endpoint(Jobs& jobs, const Users& users, http::Listener listener,
           std::shared_ptr<const http::Encryption> encryption, uint64_t bytes_per_s);
  // Ends every connection.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void Start();
  const http::Address& address() const;
  EndpointNumbers numbers() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpuprobe::hub
