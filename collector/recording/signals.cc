#include "collector/recording/signals.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpuprobe::recording {

absl::StatusOr<SignalFd> SignalFd::Open(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return Open(set);
}

absl::StatusOr<SignalFd> SignalFd::OpenAll() {
  sigset_t set;
  sigfillset(&set);
  return Open(set);
}

absl::StatusOr<SignalFd> SignalFd::Open(const sigset_t& set) {
  sigset_t previous;
  if (sigprocmask(SIG_BLOCK, &set, &previous) != 0) {
    return absl::InternalError(absl::StrCat("sigprocmask: ", std::strerror(errno)));
  }
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return absl::InternalError(absl::StrCat("signalfd: ", std::strerror(errno)));
  return SignalFd(fd, previous);
}

SignalFd::SignalFd(SignalFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), previous_(other.previous_) {}

SignalFd::~SignalFd() {
  if (fd_ >= 0) close(fd_);
}

void SignalFd::ReadAll(const std::function<void(const signalfd_siginfo&)>& handle) const {
  signalfd_siginfo info{};
  while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) handle(info);
}

void EndBySignal(int signal) {
  std::fflush(nullptr);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  std::signal(signal, SIG_DFL);
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, signal);
  raise(signal);
  sigprocmask(SIG_UNBLOCK, &only, nullptr);
}

}  // namespace gpuprobe::recording
