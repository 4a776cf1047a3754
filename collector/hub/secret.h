// What proves that two hosts work for the same user: a secret that both have, and that is never sent.
//
// Or munge, which says so without one (munge.h): then each host makes a key and has munge bring it to the
// hub.
//
// Example: a token file in a home directory that both hosts mount. What one host sends has a signature
// (HMAC-SHA256) that only somebody with the secret can make.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "collector/hub/munge.h"

namespace gpuprobe::hub {

class Secret {
 public:
  static constexpr char kVariable[] = "GPUPROBE_HUB_TOKEN";
  // Ways to prove who one is.
  static constexpr char kMungeWay[] = "munge";
  static constexpr char kTokenWay[] = "token";
  static constexpr char kUserWay[] = "user";  // of a hub that has a token of each user (users.h)

  explicit Secret(std::string key, std::string origin = "")
      : key_(std::move(key)), origin_(std::move(origin)) {}
  // Has no key: those that hosts make for each hub are secrets of their own.
  explicit Secret(std::shared_ptr<const Munge> munge) : origin_(kMungeWay), munge_(std::move(munge)) {}

  // The variable's value, which somebody chose; else munge, where its daemon runs; else the first line of
  // gpuprobe/hub-token in the user's configuration folder
  // ($XDG_CONFIG_HOME or ~/.config), which is made if it is missing. One line if there is none, with a
  // remedy. Takes the variable out of the environment, which programs that are started later inherit.
  static absl::StatusOr<Secret> Find();
  // The same, with the variable's value in the environment of another process of this user; empty: it has
  // none.
  static absl::StatusOr<Secret> Find(const std::string& given);

  // Where the file is, or would be; empty: the user has no home directory.
  static std::string File();

  // `purpose` keeps what was signed for one use from being used for another. In hexadecimal.
  std::string Sign(std::string_view purpose, std::string_view text) const;
  bool HasSigned(std::string_view purpose, std::string_view text, std::string_view signature) const;
  // Says which of several it is, and nothing about it.
  std::string Name() const { return Sign("name", ""); }
  // For people: where it stands.
  const std::string& origin() const { return origin_; }
  // Null: there is a key.
  const Munge* munge() const { return munge_.get(); }
  const char* way() const { return munge_ == nullptr ? kTokenWay : kMungeWay; }

 private:
  std::string key_;
  std::string origin_;
  std::shared_ptr<const Munge> munge_;
};

// SHA-256, in hexadecimal.
std::string DigestOf(std::string_view bytes);
// So many random bytes, in hexadecimal.
std::string RandomHex(size_t bytes);

}  // namespace gpuprobe::hub
