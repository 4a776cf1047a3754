#include "collector/hub/users.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "collector/http/access.h"

namespace gpuprobe::hub {
namespace {

constexpr size_t kMostUserNameBytes = 32;
constexpr size_t kUnknownKeyBytes = 32;
constexpr char kRowsFolder[] = "clickhouse-spool";  // beside the users' folders
constexpr char kLineForm[] = "NAME HUB-TOKEN [READ-TOKEN]";

// The users of the lines so far, and where each name and token stands.
class UserLines {
 public:
  explicit UserLines(const std::string& operators_token) : operators_token_(operators_token) {}

  absl::Status Add(std::string_view line, size_t number) {
    const std::string_view text = line.substr(0, line.find('#'));
    const std::vector<std::string> words = absl::StrSplit(absl::string_view(text.data(), text.size()),
                                                          absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) return absl::OkStatus();
    if (words.size() < 2 || words.size() > 3)
      return Wrong(number, absl::StrCat("a line is ", kLineForm, ", and this one has ", words.size(),
                                        words.size() == 1 ? " word" : " words"));
    const std::string& name = words[0];
    if (!IsUserName(name))
      return Wrong(number,
                   absl::StrCat("a user's name has at most ", kMostUserNameBytes,
                                " of a-z 0-9 _ . -, begins with a letter or _, and is not ", kRowsFolder));
    if (const auto [at, is_new] = names_.emplace(name, number); !is_new)
      return Wrong(number,
                   absl::StrCat(name, " is in line ", at->second, " already; each user has one line"));
    if (users_.size() >= Users::kMost)
      return Wrong(number, absl::StrCat("there are more than ", Users::kMost, " users"));
    for (size_t i = 1; i < words.size(); ++i) {
      const char* const what = i == 1 ? "HUB-TOKEN" : "READ-TOKEN";
      if (absl::Status s = CheckNew(words[i], number); !s.ok())
        return Wrong(number, absl::StrCat(what, ": ", s.message()));
    }
    const Secret secret(words[1], absl::StrCat("the line of ", name));
    users_.emplace(secret.Name(),
                   User{.name = name, .secret = secret, .read_token = words.size() > 2 ? words[2] : ""});
    return absl::OkStatus();
  }
  std::map<std::string, User> Take() { return std::move(users_); }

 private:
  static absl::Status Wrong(size_t number, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(number, ": ", why));
  }
  absl::Status CheckNew(const std::string& token, size_t number) {
    if (absl::Status s = http::CheckToken(token); !s.ok()) return s;
    if (token == operators_token_)
      return absl::InvalidArgumentError("this token is the operator's (--http-token); give another one");
    const auto [at, is_new] = tokens_.emplace(token, number);
    return is_new ? absl::OkStatus()
                  : absl::InvalidArgumentError(absl::StrCat("this token is in line ", at->second,
                                                            " already; to make one: openssl rand -hex 32"));
  }

  const std::string& operators_token_;
  std::map<std::string, User> users_;
  std::map<std::string, size_t> names_;
  std::map<std::string, size_t> tokens_;
};

}  // namespace

bool IsUserName(std::string_view name) {
  const auto is_first = [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; };
  const auto is_later = [&](char c) { return is_first(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; };
  return !name.empty() && name.size() <= kMostUserNameBytes && is_first(name.front()) &&
         std::all_of(name.begin(), name.end(), is_later) && name != kRowsFolder;
}

Users::Users(std::string path, std::string operators_token)
    : path_(std::move(path)),
      operators_token_(std::move(operators_token)),
      nobody_{.name = "", .secret = Secret(RandomHex(kUnknownKeyBytes)), .read_token = ""} {}

absl::StatusOr<std::unique_ptr<Users>> Users::Read(const std::string& path,
                                                   const std::string& operators_token) {
  std::unique_ptr<Users> users(new Users(path, operators_token));
  Version version;
  absl::StatusOr<ByName> read = users->ReadFile(version);
  if (!read.ok()) return read.status();
  users->version_ = version;
  users->users_ = *std::move(read);
  return users;
}

absl::StatusOr<bool> Users::ReadAgain() {
  Version version;
  const Version before = version_;
  absl::StatusOr<ByName> read = ReadFile(version);
  version_ = version;
  if (version == before) return false;
  if (!read.ok()) return read.status();
  const std::lock_guard lock(mutex_);
  users_ = *std::move(read);
  return true;
}

absl::StatusOr<Users::ByName> Users::ReadFile(Version& version) const {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const int error = errno;
  version = Version(0, 0, 0, 0, fd < 0 ? error : 0);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path_, ": ", std::strerror(error)));
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path_, " is not a file"));
  version = Version(st.st_dev, st.st_ino, st.st_size, st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec,
                    st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec);
  if (version == version_) return ByName();
  if (st.st_uid != geteuid())
    return absl::PermissionDeniedError(absl::StrCat(path_, " belongs to uid ", st.st_uid,
                                                    ", and the hub is uid ", geteuid(), ": chown ", geteuid(),
                                                    " ", path_));
  if ((st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat(path_, " is open to others, so its tokens are no secrets: chmod 600 ", path_));
  if (static_cast<uint64_t>(st.st_size) > kMostFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path_, " is longer than ", kMostFileBytes >> 10U, " KiB"));
  std::string text(kMostFileBytes, '\0');
  size_t size = 0;
  for (ssize_t n = 1; n > 0 && size < text.size();) {
    n = read(fd, text.data() + size, text.size() - size);
    if (n < 0) return absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno)));
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  UserLines lines(operators_token_);
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::Status s = lines.Add(std::string_view(line.data(), line.size()), ++number); !s.ok())
      return absl::InvalidArgumentError(absl::StrCat(path_, ":", s.message()));
  }
  ByName users = lines.Take();
  if (users.empty())
    return absl::InvalidArgumentError(absl::StrCat(path_, " names nobody: add lines ", kLineForm));
  return users;
}

User Users::Find(const std::string& secret_name) const {
  const std::lock_guard lock(mutex_);
  const auto found = users_.find(secret_name);
  return found == users_.end() ? nobody_ : found->second;
}

std::vector<User> Users::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<User> all;
  all.reserve(users_.size());
  for (const auto& [secret_name, user] : users_) all.push_back(user);
  return all;
}

}  // namespace gpuprobe::hub
