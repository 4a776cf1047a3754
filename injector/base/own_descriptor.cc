#include "injector/base/own_descriptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>

namespace gpuprobe::injector {

namespace {

constexpr int kHighestTried = 64;  // places below a limit that is too low
constexpr int kLeftToProgram = 16;

// Whether so many numbers below the limit are free that the program will not miss one. Looks from the top,
// where they nearly always are.
bool EnoughAreFree() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const int end = limit.rlim_cur < INT_MAX ? static_cast<int>(limit.rlim_cur) : INT_MAX;
  int free = 0;
  for (int fd = end - 1; fd >= 0 && free <= kLeftToProgram; --fd) free += fcntl(fd, F_GETFD) < 0 ? 1 : 0;
  return free > kLeftToProgram;
}

bool IsFile(int fd, dev_t device, ino_t inode) noexcept {
  struct stat status {};
  return fstat(fd, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

// A second descriptor of the same file, out of the way. -1: there is none above `fd`.
int MoveUp(int fd) noexcept {
  int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestOwnDescriptor);
  if (high >= 0) return high;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return -1;
  const int end =
      limit.rlim_cur > kLowestOwnDescriptor ? kLowestOwnDescriptor : static_cast<int>(limit.rlim_cur);
  for (int lowest = end - 1; high < 0 && lowest > fd && lowest >= end - kHighestTried; --lowest)
    high = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
  return high;
}

}  // namespace

bool OwnDescriptor::Adopt(int fd) noexcept {
  Close();
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) return false;
  const int high = fd < kLowestOwnDescriptor ? MoveUp(fd) : fd;
  if (high != fd && high >= 0) {
    if (IsFile(fd, status.st_dev, status.st_ino)) close(fd);
    if (!IsFile(high, status.st_dev, status.st_ino)) {
      close(high);  // another number for a file that the program opened meanwhile
      return false;
    }
  }
  fd_ = high >= 0 ? high : fd;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return true;
}

bool OwnDescriptor::Open(const char* path, int flags, mode_t mode) noexcept {
  Close();
  if (!EnoughAreFree()) return false;
  const int fd = ::open(path, flags | O_CLOEXEC, mode);
  struct stat status {};
  const int follow = (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0;
  // By now the number may be the program's: then there is nothing to close.
  return fd >= 0 && fstatat(AT_FDCWD, path, &status, follow) == 0 &&
         IsFile(fd, status.st_dev, status.st_ino) && Adopt(fd);
}

bool OwnDescriptor::OpenStreamSocket() noexcept {
  Close();
  if (!EnoughAreFree()) return false;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un name{};
  socklen_t size = sizeof(name);
  // Neither bound nor connected, as a socket of the program's that has got the number would soon be.
  return fd >= 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
         name.sun_family == AF_UNIX && size == sizeof(name.sun_family) &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0 && Adopt(fd);
}

void OwnDescriptor::Close() noexcept {
  if (StillOurs()) close(fd_);
  fd_ = -1;
}

bool OwnDescriptor::StillOurs() const noexcept { return fd_ >= 0 && IsFile(fd_, device_, inode_); }

size_t ReadOwnFile(const char* path, char* out, size_t capacity) noexcept {
  OwnDescriptor file;
  if (!file.Open(path, O_RDONLY)) return 0;
  size_t size = 0;
  while (size < capacity) {
    const ssize_t got = pread(file.get(), out + size, capacity - size, static_cast<off_t>(size));
    if (got <= 0) break;
    size += static_cast<size_t>(got);
  }
  return size;
}

}  // namespace gpuprobe::injector
