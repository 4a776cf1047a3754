#include "collector/store/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/store/safe_path.h"

namespace gpuprobe::store {
namespace {

constexpr int kMaxAttempts = 1000;
constexpr mode_t kPrivate = 0700;
constexpr mode_t kReadable = 0755;   // less the umask
constexpr mode_t kShareable = 0777;  // of parents: a project's umask lets its group record there, too
constexpr mode_t kFileMode = 0644;

absl::Status SystemError(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

bool IsOurGroup(gid_t group) {
  if (group == getegid()) return true;
  const int count = getgroups(0, nullptr);
  if (count <= 0) return false;
  std::vector<gid_t> groups(static_cast<size_t>(count));
  const int got = getgroups(count, groups.data());
  return got > 0 && std::find(groups.begin(), groups.begin() + got, group) != groups.begin() + got;
}

struct Split {
  std::string parent;
  std::string name;
};

Split SplitPath(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

// Opens what mkdirat has just made: it must still be there, and be ours.
absl::StatusOr<int> OpenMade(int parent, const std::string& name, const std::string& path) {
  const int fd = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return SystemError(path, errno);
  struct stat st {};
  if (fstat(fd, &st) == 0 && st.st_uid == geteuid()) return fd;
  close(fd);
  return absl::PermissionDeniedError(absl::StrCat(
      path, " was replaced while it was being created, or its file system has no owners; choose ",
      "another directory with --out"));
}

// A parent that is missing.
absl::Status MakeParent(int parent, const std::string& name, const std::string& path) {
  if (absl::Status s = CheckPlace(parent, SplitPath(path).parent); !s.ok()) return s;
  if (mkdirat(parent, name.c_str(), kShareable) != 0)
    return errno == EEXIST ? absl::OkStatus() : SystemError(path, errno);  // made by another rank
  const absl::StatusOr<int> made = OpenMade(parent, name, path);
  if (made.ok()) close(*made);
  return made.status();
}

// The existing entry.
absl::StatusOr<int> OpenExisting(int parent, const std::string& name, const std::string& path) {
  const int fd = openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    struct stat st {};
    if (fstatat(parent, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is a symbolic link; name its target directory"));
    }
    return SystemError(path, error);
  }
  absl::Status status = CheckPlace(fd, path);
  if (status.ok() && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
    status = absl::PermissionDeniedError(absl::StrCat(path, " cannot be written: ", std::strerror(errno)));
  }
  if (status.ok()) return fd;
  close(fd);
  return status;
}

struct MadeDirectory {
  int fd = -1;
  std::string name;
};

// The first free one of `name`, `name`-2 ...
absl::StatusOr<MadeDirectory> MakeFree(int parent, const std::string& name, const std::string& path,
                                       mode_t mode) {
  std::string free = name;
  for (int i = 2; i < kMaxAttempts; ++i) {
    if (mkdirat(parent, free.c_str(), mode) == 0) {
      absl::StatusOr<int> fd = OpenMade(parent, free, path);
      if (!fd.ok()) return fd.status();
      return MadeDirectory{*fd, free};
    }
    if (errno != EEXIST) break;
    free = absl::StrCat(name, "-", i);
  }
  return absl::UnavailableError(absl::StrCat(path, " cannot be created: ", std::strerror(errno)));
}

std::string Joined(const std::string& parent, const std::string& name) {
  return parent == "/" ? absl::StrCat("/", name) : absl::StrCat(parent, "/", name);
}

}  // namespace

absl::Status CheckPlace(int fd, const std::string& path) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return SystemError(path, errno);
  if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " can be written by every user, who could replace its contents; chmod o-w it, or ",
                     "choose another directory with --out"));
  }
  const uid_t us = geteuid();
  if (st.st_uid == us || st.st_uid == 0 || us == 0) return absl::OkStatus();
  if ((st.st_mode & S_IWGRP) != 0 && IsOurGroup(st.st_gid)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(path, " belongs to another user (uid ", st.st_uid,
                                                  "); choose a directory of your own with --out"));
}

absl::StatusOr<Directory> Directory::Make(const std::string& path) {
  const absl::StatusOr<PathPlace> place = FindPlace(path, LastLink::kKeep, MakeParent);
  if (!place.ok())
    return absl::Status(place.status().code(),
                        absl::StrCat(path, " cannot be created: ", place.status().message()));
  const int parent = place->parent;
  const std::string& name = place->name;
  if (name != ".") {
    if (absl::Status s = CheckPlace(parent, place->parent_path); !s.ok()) return s;
    if (mkdirat(parent, name.c_str(), kReadable) == 0) {
      absl::StatusOr<int> fd = OpenMade(parent, name, path);
      if (!fd.ok()) return fd.status();
      return Directory(*fd, path, true);
    }
    if (errno != EEXIST)
      return absl::UnavailableError(absl::StrCat(path, " cannot be created: ", std::strerror(errno)));
  }
  absl::StatusOr<int> fd = OpenExisting(parent, name, path);
  if (!fd.ok()) return fd.status();
  return Directory(*fd, path, false);
}

absl::StatusOr<Directory> Directory::MakeNew(const std::string& path) {
  const absl::StatusOr<PathPlace> place = FindPlace(path, LastLink::kKeep, MakeParent);
  if (!place.ok()) return place.status();
  if (absl::Status s = CheckPlace(place->parent, place->parent_path); !s.ok()) return s;
  const Split split = SplitPath(path);
  absl::StatusOr<MadeDirectory> made = MakeFree(place->parent, split.name, path, kReadable);
  if (!made.ok()) return made.status();
  return Directory(made->fd, path.substr(0, path.size() - split.name.size()) + made->name, true);
}

Directory Directory::Adopt(int fd, std::string path) { return {fd, std::move(path), false}; }

absl::StatusOr<Directory> Directory::MakeNewInside(const std::string& name) const {
  absl::StatusOr<MadeDirectory> made = MakeFree(fd_, name, Joined(path_, name), kPrivate);
  if (!made.ok()) return made.status();
  return Directory(made->fd, Joined(path_, made->name), true);
}

Directory::~Directory() {
  if (fd_ >= 0) close(fd_);
}

Directory::Directory(Directory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), made_(other.made_) {}

Directory& Directory::operator=(Directory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(made_, other.made_);
  return *this;
}

absl::StatusOr<int> Directory::CreateFile(const std::string& name) const {
  const int fd = openat(fd_, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kFileMode);
  if (fd >= 0) return fd;
  if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat(Joined(path_, name), " exists"));
  return SystemError(Joined(path_, name), errno);
}

absl::StatusOr<int> Directory::ContinueFile(const std::string& name) const {
  const int fd = openat(fd_, name.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat st {};
  if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return fd;
  const int error = fd < 0 ? errno : EINVAL;
  if (fd >= 0) close(fd);
  return SystemError(Joined(path_, name), error);
}

absl::Status Directory::Truncate(const std::string& name, uint64_t bytes) const {
  const absl::StatusOr<int> fd = ContinueFile(name);
  if (!fd.ok()) return fd.status();
  const int error = ftruncate(*fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  close(*fd);
  return error == 0 ? absl::OkStatus() : SystemError(Joined(path_, name), error);
}

absl::Status Directory::Lock() const {
  // A file system that cannot lock directories cannot keep two collectors apart either.
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path_, " is being recorded by another collector; choose another directory"));
}

absl::Status Directory::WriteFile(const std::string& name, std::string_view content) const {
  const std::string temporary = absl::StrCat(name, ".tmp");
  Remove(temporary);  // left by a collector that was killed while it wrote
  const absl::StatusOr<int> fd = CreateFile(temporary);
  if (!fd.ok()) return fd.status();
  int error = 0;
  while (!content.empty() && error == 0) {
    const ssize_t n = write(*fd, content.data(), content.size());
    if (n >= 0) {
      content.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (close(*fd) != 0 && error == 0) error = errno;
  absl::Status status = error == 0 ? Rename(temporary, name) : SystemError(Joined(path_, name), error);
  if (!status.ok()) Remove(temporary);
  return status;
}

absl::Status Directory::Rename(const std::string& from, const std::string& to) const {
  if (renameat(fd_, from.c_str(), fd_, to.c_str()) == 0) return absl::OkStatus();
  return SystemError(Joined(path_, to), errno);
}

void Directory::Remove(const std::string& name) const { unlinkat(fd_, name.c_str(), 0); }

bool Directory::Exists(const std::string& name) const {
  struct stat st {};
  return fstatat(fd_, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t Directory::FileBytes(const std::string& name) const {
  struct stat st {};
  const bool is_file = fstatat(fd_, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
  return is_file ? static_cast<uint64_t>(st.st_size) : 0;
}

absl::StatusOr<std::vector<std::string>> Directory::List() const {
  const int again = openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* listing = again < 0 ? nullptr : fdopendir(again);
  if (listing == nullptr) {
    const int error = errno;
    if (again >= 0) close(again);
    return SystemError(path_, error);
  }
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(listing);
  return names;
}

void Directory::RemoveIfEmpty() const {
  struct stat held {};
  struct stat named {};
  if (fstat(fd_, &held) != 0 || lstat(path_.c_str(), &named) != 0) return;
  if (held.st_dev == named.st_dev && held.st_ino == named.st_ino) rmdir(path_.c_str());
}

}  // namespace gpuprobe::store
