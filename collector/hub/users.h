// The users of a hub that serves several: one line for each, in a file that only the hub's own user can read.
//
//   # NAME  HUB-TOKEN                         READ-TOKEN
//   alice   3b5f0c66e1c94f1aa3d1b1c8e1f7c5de  91d2aa52d3b84c0b9a5f2e9d7c11f0ab
//   bob     77e0d4b1f2a94d37b0c6a3f5e8d9c412
//
// A user's hosts sign with HUB-TOKEN what they post. READ-TOKEN shows that user's jobs and nobody else's; bob
// reads nothing. The file is read again when it changes. Safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/hub/secret.h"

namespace gpuprobe::hub {

// Lower-case letters, digits and _ . -, which a folder can have as its name.
bool IsUserName(std::string_view name);

struct User {
  std::string name;        // empty: nobody
  Secret secret;           // of his hosts
  std::string read_token;  // empty: he reads nothing
};

class Users {
 public:
  static constexpr size_t kMost = 1000;
  static constexpr size_t kMostFileBytes = size_t{1} << 20;

  // `operators_token`: no user may have it. Errors are one line with the file, the number of the line and
  // what mends it, and without the tokens.
  static absl::StatusOr<std::unique_ptr<Users>> Read(const std::string& path,
                                                     const std::string& operators_token = "");

  // Reads the file again if it has changed: whether others are in force now. An error is returned once for
  // each change, and the users before stay in force. From one thread.
  absl::StatusOr<bool> ReadAgain();
  // Whose secret has this name (Secret::Name). If it is nobody's: nobody, with a secret that no host has.
  User Find(const std::string& secret_name) const;
  std::vector<User> all() const;
  const std::string& path() const { return path_; }

 private:
  // What changes when a file does.
  using Version = std::tuple<uint64_t, uint64_t, int64_t, int64_t, int64_t>;
  using ByName = std::map<std::string, User>;  // of the secret

  Users(std::string path, std::string operators_token);
  absl::StatusOr<ByName> ReadFile(Version& version) const;

  const std::string path_;
  const std::string operators_token_;
  const User nobody_;
  Version version_;
  mutable std::mutex mutex_;
  ByName users_;  // under the mutex
};

}  // namespace gpuprobe::hub
