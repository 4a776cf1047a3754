#include "collector/ingest/endpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::ingest {
namespace {

// The most that the kernel allows by default: a user who connects all the time must not fill it.
constexpr int kBacklog = 4096;

std::string LockPath(const std::string& socket) { return absl::StrCat(socket, ".lock"); }

absl::Status SystemError(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Permissions beyond the owner's of the directory and the socket.
mode_t DirectoryMode(Audience audience) { return audience == Audience::kNode ? 0755 : 0700; }
mode_t SocketMode(Audience audience) { return audience == Audience::kNode ? 0666 : 0600; }

struct Place {
  std::string directory;
  std::string name;  // of the socket
};

Place PlaceOf(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string parent = whole.parent_path();
  return {parent.empty() ? std::string(1, '.') : parent, whole.filename()};
}

bool CalledAfterUs(const std::string& directory) {
  return std::filesystem::path(directory).filename().string().starts_with("gpuprobe");
}

// Directories named after us must be ours alone. A directory that the user chose is left as it is, if no
// other user can replace the socket in it.
absl::Status CheckDirectory(int fd, const std::string& directory, Audience audience) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return SystemError(directory, errno);
  const bool called_after_us = CalledAfterUs(directory);
  const bool ours = st.st_uid == geteuid();
  const bool must_be_ours = called_after_us || audience == Audience::kNode;
  if ((must_be_ours && !ours) || (!ours && st.st_uid != 0 && (st.st_mode & S_IWGRP) == 0)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " belongs to another user (uid ", st.st_uid,
                                                      "); choose another one with --socket"));
  }
  if (called_after_us) {
    const mode_t mode = DirectoryMode(audience);
    if ((st.st_mode & 0777) != mode && fchmod(fd, mode) != 0) return SystemError(directory, errno);
    return absl::OkStatus();
  }
  if ((st.st_mode & S_IWOTH) != 0 && (st.st_mode & S_ISVTX) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " can be written by every user, who could replace the socket; chmod o-w it, ",
                     "or choose another one with --socket"));
  }
  return absl::OkStatus();
}

std::string ReadPid(int fd) {
  char text[32] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

absl::StatusOr<int> TakeLock(int directory, const std::string& name, const std::string& socket) {
  const std::string path = LockPath(socket);
  const std::string lock = LockPath(name);
  // The previous owner may remove the file between our open and our lock: what we locked must still be what
  // the path names.
  for (int attempt = 0; attempt < 16; ++attempt) {
    const int fd =
        openat(directory, lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0) return SystemError(path, errno);
    struct stat locked {};
    if (fstat(fd, &locked) != 0 || !S_ISREG(locked.st_mode) || locked.st_uid != geteuid()) {
      close(fd);
      return absl::FailedPreconditionError(
          absl::StrCat(path, " was put there by another user; choose another place with --socket"));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string pid = ReadPid(fd);
      close(fd);
      if (error != EWOULDBLOCK) return SystemError(path, error);
      return absl::AlreadyExistsError(
          absl::StrCat("a collector (pid ", pid, ") already listens on ", socket));
    }
    struct stat named {};
    if (fstatat(directory, lock.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && locked.st_dev == named.st_dev &&
        locked.st_ino == named.st_ino) {
      const std::string pid = absl::StrCat(getpid(), "\n");
      if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
        const int error = errno;
        close(fd);
        return SystemError(path, error);
      }
      return fd;
    }
    close(fd);
  }
  return absl::UnavailableError(absl::StrCat(path, " keeps being replaced"));
}

// Binds to the path, and makes sure that the socket is in the directory that was checked.
absl::Status Bind(int fd, const sockaddr_un& address, int directory, const std::string& name,
                  Audience audience) {
  const mode_t mask = umask(0777 & ~SocketMode(audience));
  const int bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(mask);
  if (bound != 0) return SystemError(address.sun_path, error);
  struct stat st {};
  if (fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode) ||
      st.st_uid != geteuid()) {
    return absl::FailedPreconditionError(absl::StrCat(
        address.sun_path, " was replaced while it was being created; choose another place with --socket"));
  }
  if (listen(fd, kBacklog) != 0) return SystemError(address.sun_path, errno);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int> OpenSocketDirectory(const std::string& directory, Audience audience) {
  bool made = false;
  if (CalledAfterUs(directory)) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), error);
    made = mkdir(directory.c_str(), DirectoryMode(audience)) == 0;
    if (!made && errno != EEXIST) return SystemError(directory, errno);
  }
  const int no_link = made || directory.starts_with("/tmp/gpuprobe-") ? O_NOFOLLOW : 0;
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_link);
  if (fd < 0) {
    if (errno == ENOENT)
      return absl::NotFoundError(absl::StrCat(directory,
                                              ": no such directory; create it, or choose another one "
                                              "with --socket"));
    return errno == ENOTDIR || errno == ELOOP
               ? absl::FailedPreconditionError(absl::StrCat(directory, " is not a directory"))
               : SystemError(directory, errno);
  }
  if (absl::Status s = CheckDirectory(fd, directory, audience); !s.ok()) {
    close(fd);
    return s;
  }
  return fd;
}

std::string DefaultSocketPath() {
  if (const char* path = std::getenv("GPUPROBE_SOCKET"); path != nullptr && *path != '\0') return path;
  if (const char* dir = std::getenv("XDG_RUNTIME_DIR"); dir != nullptr && *dir != '\0') {
    return absl::StrCat(dir, "/gpuprobe/collector.sock");
  }
  return absl::StrCat("/tmp/gpuprobe-", getuid(), "/collector.sock");
}

absl::StatusOr<Endpoint> Endpoint::Open(const std::string& path, Audience audience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is longer than the ",
                                                   sizeof(address.sun_path) - 1,
                                                   " bytes that the system allows: ", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const Place place = PlaceOf(path);
  absl::StatusOr<int> directory = OpenSocketDirectory(place.directory, audience);
  if (!directory.ok()) return directory.status();
  auto close_directory = absl::MakeCleanup([&] { close(*directory); });
  absl::StatusOr<int> lock = TakeLock(*directory, place.name, path);
  if (!lock.ok()) return lock.status();
  auto release = absl::MakeCleanup([&] {
    unlinkat(*directory, LockPath(place.name).c_str(), 0);
    close(*lock);
  });
  unlinkat(*directory, place.name.c_str(), 0);  // the lock was free: a socket here is stale
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("socket", errno);
  if (absl::Status s = Bind(fd, address, *directory, place.name, audience); !s.ok()) {
    close(fd);
    return s;
  }
  std::move(release).Cancel();
  std::move(close_directory).Cancel();
  return Endpoint(path, *directory, fd, *lock);
}

Endpoint::Endpoint(Endpoint&& other) noexcept
    : path_(std::move(other.path_)),
      directory_fd_(std::exchange(other.directory_fd_, -1)),
      listen_fd_(std::exchange(other.listen_fd_, -1)),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

Endpoint::~Endpoint() {
  if (listen_fd_ < 0) return;
  const std::string name = PlaceOf(path_).name;
  close(listen_fd_);
  unlinkat(directory_fd_, name.c_str(), 0);
  unlinkat(directory_fd_, LockPath(name).c_str(), 0);
  close(lock_fd_);
  close(directory_fd_);
}

}  // namespace gpuprobe::ingest
