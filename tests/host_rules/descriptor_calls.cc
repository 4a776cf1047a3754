// Calls that take a descriptor.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "tests/host_rules/host_rules.h"

using namespace host_rules;

namespace {

constexpr int kLowestOwn = 512;

std::atomic<bool> low_is_ours[kLowestOwn];

// A number below 512 that the probe has not just opened. Standard error is its threads' to write to.
void CheckDescriptor(const void* caller, int fd, bool writes, const char* function) {
  if (!IsProbe(caller) || fd < 0 || fd >= kLowestOwn || low_is_ours[fd].load()) return;
  if (!writes) return Break("descriptors", function);
  if (fd != STDERR_FILENO) return Break("descriptors", function);
  if (kind == Kind::kApplication) Break("standard-error", function);
}

int NoteOpened(const void* caller, int fd) {
  if (fd >= 0 && fd < kLowestOwn) low_is_ours[fd].store(IsProbe(caller));
  return fd;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return NoteOpened(CALLER, next(path, flags, mode));
}
int socket(int domain, int type, int protocol) {
  NEXT(socket);
  return NoteOpened(CALLER, next(domain, type, protocol));
}
int close(int fd) {
  NEXT(close);
  CheckDescriptor(CALLER, fd, false, "close");
  if (fd >= 0 && fd < kLowestOwn) low_is_ours[fd].store(false);
  return next(fd);
}
int dup2(int from, int to) {
  NEXT(dup2);
  CheckDescriptor(CALLER, to, false, "dup2");
  return next(from, to);
}
int dup3(int from, int to, int flags) {
  NEXT(dup3);
  CheckDescriptor(CALLER, to, false, "dup3");
  return next(from, to, flags);
}
int close_range(unsigned int first, unsigned int last, int flags) {
  NEXT(close_range);
  RULE("descriptors", close_range);
  return next(first, last, flags);
}
ssize_t write(int fd, const void* data, size_t size) {
  NEXT(write);
  CheckDescriptor(CALLER, fd, true, "write");
  return next(fd, data, size);
}
ssize_t writev(int fd, const iovec* parts, int count) {
  NEXT(writev);
  CheckDescriptor(CALLER, fd, true, "writev");
  return next(fd, parts, count);
}
ssize_t send(int fd, const void* data, size_t size, int flags) {
  NEXT(send);
  CheckDescriptor(CALLER, fd, true, "send");
  return next(fd, data, size, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  NEXT(sendmsg);
  CheckDescriptor(CALLER, fd, true, "sendmsg");
  return next(fd, message, flags);
}
ssize_t sendto(int fd, const void* data, size_t size, int flags, const sockaddr* to, socklen_t length) {
  NEXT(sendto);
  CheckDescriptor(CALLER, fd, true, "sendto");
  return next(fd, data, size, flags, to, length);
}
int sendmmsg(int fd, mmsghdr* messages, unsigned int count, int flags) {
  NEXT(sendmmsg);
  CheckDescriptor(CALLER, fd, true, "sendmmsg");
  return next(fd, messages, count, flags);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  NEXT(pwrite);
  CheckDescriptor(CALLER, fd, true, "pwrite");
  return next(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  NEXT(pwrite64);
  CheckDescriptor(CALLER, fd, true, "pwrite64");
  return next(fd, data, size, at);
}
ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  NEXT(pwritev);
  CheckDescriptor(CALLER, fd, true, "pwritev");
  return next(fd, parts, count, at);
}
ssize_t recv(int fd, void* data, size_t size, int flags) {
  NEXT(recv);
  CheckDescriptor(CALLER, fd, false, "recv");
  return next(fd, data, size, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  NEXT(recvmsg);
  CheckDescriptor(CALLER, fd, false, "recvmsg");
  const ssize_t got = next(fd, message, flags);
  cmsghdr* const header = got > 0 ? CMSG_FIRSTHDR(message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int passed = -1;
    std::memcpy(&passed, CMSG_DATA(header), sizeof(passed));
    NoteOpened(CALLER, passed);
  }
  return got;
}
ssize_t read(int fd, void* data, size_t size) {
  NEXT(read);
  CheckDescriptor(CALLER, fd, false, "read");
  return next(fd, data, size);
}
int fcntl(int fd, int command, ...) {
  NEXT(fcntl);
  va_list more;
  va_start(more, command);
  void* argument = va_arg(more, void*);
  va_end(more);
  if (command == F_SETFL || command == F_SETFD) CheckDescriptor(CALLER, fd, false, "fcntl");
  return next(fd, command, argument);
}
}
