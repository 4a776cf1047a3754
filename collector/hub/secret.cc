#include "collector/hub/secret.h"

#include <fcntl.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "collector/http/access.h"
#include "collector/store/directory.h"

namespace gpuprobe::hub {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "hub-token";
constexpr size_t kTokenBytes = 32;

std::string Hex(const unsigned char* bytes, size_t size) {
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(bytes), size));
}

std::string ConfigurationFolder() {
  const char* configuration = std::getenv("XDG_CONFIG_HOME");
  if (configuration != nullptr && *configuration == '/') return configuration;
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? absl::StrCat(home, "/.config") : "";
}

// Another host may do the same in the same folder: whoever links it first has made it.
absl::Status MakeTokenFile(const std::string& folder) {
  const absl::StatusOr<store::Directory> directory = store::Directory::Make(folder);
  if (!directory.ok()) return directory.status();
  const std::string own = absl::StrCat(kFile, ".", RandomHex(8));
  const int fd = openat(directory->fd(), own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        S_IRUSR | S_IWUSR);
  if (fd < 0) return absl::UnavailableError(absl::StrCat(folder, "/", own, ": ", std::strerror(errno)));
  const std::string line = absl::StrCat(RandomHex(kTokenBytes), "\n");
  const bool written = write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  int error = written ? 0 : ENOSPC;
  if (fsync(fd) != 0 && error == 0) error = errno;
  close(fd);
  if (error == 0 && linkat(directory->fd(), own.c_str(), directory->fd(), kFile, 0) != 0 && errno != EEXIST)
    error = errno;
  directory->Remove(own);
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(folder, "/", kFile, ": ", std::strerror(error)));
}

}  // namespace

std::string DigestOf(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return Hex(digest.data(), digest.size());
}

std::string RandomHex(size_t bytes) {
  std::random_device device;
  std::string random;
  while (random.size() < bytes) random.push_back(static_cast<char>(device()));
  return absl::BytesToHexString(random);
}

absl::StatusOr<Secret> Secret::Find() {
  const char* variable = std::getenv(kVariable);
  const std::string given = variable == nullptr ? "" : variable;
  unsetenv(kVariable);
  return Find(given);
}

absl::StatusOr<Secret> Secret::Find(const std::string& given) {
  if (!given.empty()) {
    if (absl::Status s = http::CheckToken(given); !s.ok())
      return absl::InvalidArgumentError(absl::StrCat(kVariable, ": ", s.message()));
    return Secret(given, kVariable);
  }
  if (absl::StatusOr<std::shared_ptr<const Munge>> munge = Munge::Open(); munge.ok())
    return Secret(*std::move(munge));
  const std::string path = File();
  if (path.empty())
    return absl::NotFoundError(absl::StrCat("there is no home directory for a token file; set ", kVariable,
                                            " to the same secret on every host"));
  const std::string folder = fs::path(path).parent_path().string();
  std::error_code error;
  if (!fs::exists(path, error)) {
    if (absl::Status s = MakeTokenFile(folder); !s.ok())
      return absl::Status(
          s.code(), absl::StrCat(s.message(), "; or set ", kVariable, " to the same secret on every host"));
  }
  absl::StatusOr<std::string> token = http::ReadToken(path);
  if (!token.ok()) return token.status();
  return Secret(*std::move(token), path);
}

std::string Secret::File() {
  const std::string configuration = ConfigurationFolder();
  return configuration.empty() ? "" : absl::StrCat(configuration, "/gpuprobe/", kFile);
}

std::string Secret::Sign(std::string_view purpose, std::string_view text) const {
  const std::string signs = absl::StrCat("gpuprobe hub ", absl::string_view(purpose.data(), purpose.size()),
                                         "\n", absl::string_view(text.data(), text.size()));
  std::array<unsigned char, EVP_MAX_MD_SIZE> signature{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
       reinterpret_cast<const unsigned char*>(signs.data()), signs.size(), signature.data(), &size);
  return Hex(signature.data(), size);
}

bool Secret::HasSigned(std::string_view purpose, std::string_view text, std::string_view signature) const {
  return http::SameSecret(signature, Sign(purpose, text));
}

}  // namespace gpuprobe::hub
