// Signals as events of the server's loop: blocked, and read from a descriptor.
#pragma once

#include <sys/signalfd.h>

#include <csignal>
#include <functional>
#include <initializer_list>

#include "absl/status/statusor.h"

namespace gpuprobe::recording {

class SignalFd {
 public:
  static absl::StatusOr<SignalFd> Open(std::initializer_list<int> signals);
  // All signals that a process can block.
  static absl::StatusOr<SignalFd> OpenAll();
  ~SignalFd();
  SignalFd(SignalFd&& other) noexcept;
  SignalFd& operator=(SignalFd&&) = delete;

  int fd() const { return fd_; }
  // The mask before, for a child.
  const sigset_t& previous_mask() const { return previous_; }
  void ReadAll(const std::function<void(const signalfd_siginfo&)>& handle) const;

 private:
  static absl::StatusOr<SignalFd> Open(const sigset_t& set);
  SignalFd(int fd, const sigset_t& previous) : fd_(fd), previous_(previous) {}
  int fd_;
  sigset_t previous_;
};

// Ends this process by a signal, without a core dump: so that a shell or script around us acts as it would if
// the signal had ended the command that we ran, or as the signal's sender meant it.
void EndBySignal(int signal);

}  // namespace gpuprobe::recording
