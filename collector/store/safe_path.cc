#include "collector/store/safe_path.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpuprobe::store {
namespace {

constexpr int kMostLinks = 40;  // as the kernel

absl::Status PathError(const std::string& path, int error) {
  const std::string what = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(what) : absl::UnavailableError(what);
}

class PathWalk {
 public:
  PathWalk() = default;
  PathWalk(const PathWalk&) = delete;
  PathWalk& operator=(const PathWalk&) = delete;
  ~PathWalk() {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Begin(const std::string& path) {
    Push(path);
    return StartAt(path.starts_with('/') ? "/" : ".");
  }
  bool at_end() const { return rest_.empty(); }
  std::string Take() {
    std::string name = std::move(rest_.front());
    rest_.pop_front();
    return name;
  }
  int fd() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }
  const std::string& shown() const { return shown_; }
  std::string Shown(const std::string& name) const {
    if (shown_ == ".") return name;
    return shown_ == "/" ? absl::StrCat("/", name) : absl::StrCat(shown_, "/", name);
  }
  void Enter(int folder, const std::string& name) {
    shown_ = Shown(name);
    close(std::exchange(fd_, folder));
  }

  // `link` is the link `name` in the current folder.
  absl::Status Follow(int link, const std::string& name, uid_t owner) {
    const std::string path = Shown(name);
    if (owner != geteuid() && owner != 0) {
      return absl::PermissionDeniedError(
          absl::StrCat(path, " is a symbolic link of another user (uid ", owner,
                       "), who could lead files anywhere; remove it, or name another place"));
    }
    if (++links_ > kMostLinks) return PathError(path, ELOOP);
    char target[PATH_MAX];
    const ssize_t n = readlinkat(link, "", target, sizeof(target));
    if (n < 0) return PathError(path, errno);
    const std::string text(target, static_cast<size_t>(n));
    Push(text);
    return text.starts_with('/') ? StartAt("/") : absl::OkStatus();
  }

 private:
  void Push(const std::string& path) {
    const std::vector<std::string> names = absl::StrSplit(path, '/', absl::SkipEmpty());
    rest_.insert(rest_.begin(), names.begin(), names.end());
  }
  absl::Status StartAt(const char* place) {
    const int fd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return PathError(place, errno);
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
    shown_ = place;
    return absl::OkStatus();
  }

  std::deque<std::string> rest_;
  int fd_ = -1;
  std::string shown_;
  int links_ = 0;
};

// The path that the user gave, too, where only a part of it is named.
absl::Status Named(const std::string& path, const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), absl::StrCat(path, ":"))) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Links there, such as /proc/self/fd/1, may lead to files without a path.
bool IsInProc(int fd) {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

}  // namespace

PathPlace::PathPlace(PathPlace&& other) noexcept
    : parent(std::exchange(other.parent, -1)),
      name(std::move(other.name)),
      parent_path(std::move(other.parent_path)) {}

PathPlace::~PathPlace() {
  if (parent >= 0) close(parent);
}

absl::StatusOr<PathPlace> FindPlace(const std::string& path, LastLink last_link,
                                    absl::Status (*make_folder)(int parent, const std::string& name,
                                                                const std::string& path)) {
  if (path.empty()) return PathError("\"\"", ENOENT);
  PathWalk walk;
  if (absl::Status s = walk.Begin(path); !s.ok()) return s;
  while (!walk.at_end()) {
    const std::string name = walk.Take();
    if (name == ".") continue;
    const bool last = walk.at_end() && name != "..";
    int next = openat(walk.fd(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && errno == ENOENT && last) return PathPlace(walk.Release(), name, walk.shown());
    if (next < 0 && errno == ENOENT && make_folder != nullptr) {
      if (absl::Status s = make_folder(walk.fd(), name, walk.Shown(name)); !s.ok()) return s;
      next = openat(walk.fd(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    if (next < 0) return PathError(walk.Shown(name), errno);
    absl::Cleanup close_next = [&] { close(next); };
    struct stat st {};
    if (fstat(next, &st) != 0) return PathError(walk.Shown(name), errno);
    const bool is_link = S_ISLNK(st.st_mode);
    if (last && (!is_link || last_link == LastLink::kKeep || IsInProc(next)))
      return PathPlace(walk.Release(), name, walk.shown());
    if (is_link && IsInProc(next)) {
      close(next);
      next = openat(walk.fd(), name.c_str(), O_PATH | O_CLOEXEC);
      if (next < 0) return PathError(walk.Shown(name), errno);
    } else if (is_link) {
      if (absl::Status s = walk.Follow(next, name, st.st_uid); !s.ok()) return s;
      continue;
    } else if (!S_ISDIR(st.st_mode)) {
      return PathError(walk.Shown(name), ENOTDIR);
    }
    std::move(close_next).Cancel();
    walk.Enter(next, name);
  }
  std::string shown = walk.shown();
  return PathPlace(walk.Release(), ".", std::move(shown));
}

absl::StatusOr<int> OpenFolder(const std::string& path) {
  absl::StatusOr<PathPlace> place = FindPlace(path, LastLink::kFollow);
  if (!place.ok()) return place.status();
  // A link in /proc may be followed.
  const int flags = O_DIRECTORY | O_CLOEXEC | (IsInProc(place->parent) ? 0 : O_NOFOLLOW);
  int fd = openat(place->parent, place->name.c_str(), O_RDONLY | flags);
  if (fd < 0 && errno == EACCES) fd = openat(place->parent, place->name.c_str(), O_PATH | flags);
  if (fd < 0) return PathError(path, errno);
  return fd;
}

absl::StatusOr<int> OpenOutputFile(const std::string& path) {
  absl::StatusOr<PathPlace> place = FindPlace(path, LastLink::kFollow);
  if (!place.ok()) return Named(path, place.status());
  const int no_link = IsInProc(place->parent) ? 0 : O_NOFOLLOW;
  const int fd =
      openat(place->parent, place->name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | no_link, 0666);
  if (fd < 0) return PathError(path, errno);
  return fd;
}

absl::StatusOr<std::string> PathWithoutLinks(const std::string& path) {
  const absl::StatusOr<PathPlace> place = FindPlace(path, LastLink::kKeep);
  if (!place.ok()) return Named(path, place.status());
  char folder[PATH_MAX];
  const ssize_t n = readlink(absl::StrCat("/proc/self/fd/", place->parent).c_str(), folder, sizeof(folder));
  if (n <= 0) return PathError(path, n < 0 ? errno : ENOENT);
  return absl::StrCat(absl::string_view(folder, static_cast<size_t>(n)), "/", place->name);
}

absl::Status MakeOutputFolder(const std::string& path) {
  const auto make = [](int parent, const std::string& name, const std::string& shown) {
    return mkdirat(parent, name.c_str(), 0777) == 0 || errno == EEXIST ? absl::OkStatus()
                                                                       : PathError(shown, errno);
  };
  absl::StatusOr<PathPlace> place = FindPlace(absl::StrCat(path, "/."), LastLink::kFollow, make);
  return Named(path, place.status());
}

}  // namespace gpuprobe::store
