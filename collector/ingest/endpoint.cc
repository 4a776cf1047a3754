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

std::string LockPath(const std::string& socket) { return absl::StrCat(socket, ".lock"); }

absl::Status SystemError(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Permissions beyond the owner's of the directory and the socket.
mode_t DirectoryMode(Audience audience) { return audience == Audience::kNode ? 0755 : 0700; }
mode_t SocketMode(Audience audience) { return audience == Audience::kNode ? 0666 : 0600; }

absl::Status MakeDirectory(const std::string& directory, Audience audience) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), error);
  if (mkdir(directory.c_str(), DirectoryMode(audience)) != 0 && errno != EEXIST)
    return SystemError(directory, errno);
  struct stat st {};
  if (stat(directory.c_str(), &st) != 0) return SystemError(directory, errno);
  if (!S_ISDIR(st.st_mode))
    return absl::FailedPreconditionError(absl::StrCat(directory, " is not a directory"));
  return absl::OkStatus();
}

// Our own default directories are ours alone; a directory that the user chose is left as it is.
absl::Status CheckDefaultDirectory(const std::string& directory, Audience audience) {
  struct stat st {};
  if (lstat(directory.c_str(), &st) != 0) return SystemError(directory, errno);
  if (!S_ISDIR(st.st_mode) || st.st_uid != getuid()) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " belongs to another user (uid ", st.st_uid,
                                                      "); name another one with --socket"));
  }
  const mode_t mode = DirectoryMode(audience);
  if ((st.st_mode & 0777) != mode && chmod(directory.c_str(), mode) != 0)
    return SystemError(directory, errno);
  return absl::OkStatus();
}

std::string ReadPid(int fd) {
  char text[32] = {};
  const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
  std::string pid(text, n > 0 ? static_cast<size_t>(n) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  return pid.empty() ? "unknown" : pid;
}

absl::StatusOr<int> TakeLock(const std::string& socket) {
  const std::string path = LockPath(socket);
  // The previous owner may remove the file between our open and our lock: what we locked must still be what
  // the path names.
  for (int attempt = 0; attempt < 16; ++attempt) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return SystemError(path, errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      const std::string pid = ReadPid(fd);
      close(fd);
      if (error != EWOULDBLOCK) return SystemError(path, error);
      return absl::AlreadyExistsError(
          absl::StrCat("a collector (pid ", pid, ") already listens on ", socket));
    }
    struct stat locked {};
    struct stat named {};
    if (fstat(fd, &locked) == 0 && stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino) {
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

}  // namespace

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
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string directory = parent.empty() ? std::string(1, '.') : parent;
  if (absl::Status s = MakeDirectory(directory, audience); !s.ok()) return s;
  const bool ours = std::filesystem::path(directory).filename().string().starts_with("gpuprobe");
  if (ours) {
    if (absl::Status s = CheckDefaultDirectory(directory, audience); !s.ok()) return s;
  }
  absl::StatusOr<int> lock = TakeLock(path);
  if (!lock.ok()) return lock.status();
  auto release = absl::MakeCleanup([&] {
    unlink(LockPath(path).c_str());
    close(*lock);
  });
  unlink(path.c_str());  // nobody holds the lock: a socket here is stale
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return SystemError("socket", errno);
  const mode_t mask = umask(0777 & ~SocketMode(audience));
  const int bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int error = errno;
  umask(mask);
  if (bound != 0 || listen(fd, 1024) != 0) {
    const int why = bound != 0 ? error : errno;
    close(fd);
    return SystemError(path, why);
  }
  std::move(release).Cancel();
  return Endpoint(path, fd, *lock);
}

Endpoint::Endpoint(Endpoint&& other) noexcept
    : path_(std::move(other.path_)),
      listen_fd_(std::exchange(other.listen_fd_, -1)),
      lock_fd_(std::exchange(other.lock_fd_, -1)) {}

Endpoint::~Endpoint() {
  if (listen_fd_ < 0) return;
  close(listen_fd_);
  unlink(path_.c_str());
  unlink(LockPath(path_).c_str());
  close(lock_fd_);
}

}  // namespace gpuprobe::ingest
