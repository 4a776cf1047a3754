// Proofs by munge, which Slurm sites have: a daemon on every host, all with the site's key, that says which
// user made a credential.
//
// Example: n2 wants to join the hub on n1. It asks its munged to seal a random key so that only processes of
// its own user can open it, and sends that to n1, whose munged opens it once. From then on both sign with
// that key, as with a secret that they had from the beginning (secret.h). Whoever else receives the
// credential can open nothing.
//
// libmunge.so.2 is loaded when it is first needed. Safe from several threads.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpuprobe::hub {

class Munge {
 public:
  // Why a credential was not opened: libmunge's munge_err_t (munge.h), and what we find.
  enum Error : int {
    kNone = 0,
    kNoDaemon = 6,
    kBadRealm = 13,
    kInvalid = 14,
    kExpired = 15,
    kRewound = 16,
    kReplayed = 17,
    kUnauthorized = 18,
    kOtherUser = 1000,
    kOtherPurpose = 1001,
  };
  struct Opened {
    Error error = kNone;
    std::string text;
  };

  // Asks the host's munged who we are. NotFound: munge is not installed here, or its daemon does not answer.
  static absl::StatusOr<std::shared_ptr<const Munge>> Open(const std::string& socket = "");

  // For this user's processes alone; good for `ttl_s`, 0: as long as the daemon's default, 5 minutes.
  absl::StatusOr<std::string> Seal(std::string_view text, int ttl_s = 0) const;
  // Of a credential that came from this user, on any host of the site. Each can be opened once.
  Opened Unseal(const std::string& credential) const;
  // As the daemon sees it, which is not ours in a container with users of its own.
  uid_t uid() const { return uid_; }

  // For people, on the host that sent the credential to `hub`: what is wrong and what mends it.
  static std::string Explain(const std::string& hub, int error);

 private:
  struct Functions;
  Munge(std::shared_ptr<const Functions> functions, std::string socket);

  std::shared_ptr<const Functions> functions_;
  std::string socket_;
  uid_t uid_ = 0;
};

}  // namespace gpuprobe::hub
