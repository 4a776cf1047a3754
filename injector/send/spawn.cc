// SpawnDetached (autostart.h): everything here between clone and exec runs in memory that is shared with the
// program, so it makes system calls and nothing else.
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "injector/send/autostart.h"

namespace gpuprobe::injector {

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kHighestDescriptor = 65536;  // closed one by one only on kernels before 5.9

struct SpawnRequest {
  const char* program;
  char* const* arguments;
  char* const* environment;
  char* child_stack;  // its upper end
  int error;          // written by the children, whose memory is ours
};

void CloseOtherDescriptors() noexcept {
  if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0) return;
  for (int fd = 3; fd < kHighestDescriptor; ++fd) close(fd);
}

void DefaultSignals() noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 65; ++signal) sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  // The mask belongs to this process only once it has its own signal handlers: clone without CLONE_SIGHAND
  // copied them.
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

int RunProgram(void* data) noexcept {
  auto* request = static_cast<SpawnRequest*>(data);
  setsid();
  const int null_fd = open("/dev/null", O_RDWR);
  for (int fd = 0; null_fd >= 0 && fd < 3; ++fd) dup2(null_fd, fd);
  CloseOtherDescriptors();
  DefaultSignals();
  execve(request->program, request->arguments, request->environment);
  request->error = errno == 0 ? ENOEXEC : errno;
  _exit(127);
}

// The intermediate: its end makes the collector an orphan, so that the collector is not the program's child.
int StartProgram(void* data) noexcept {
  auto* request = static_cast<SpawnRequest*>(data);
  if (clone(RunProgram, request->child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, request) < 0)
    request->error = errno;
  _exit(0);
}

}  // namespace

int SpawnDetached(const char* program, char* const* arguments, char* const* environment) noexcept {
  Mapping stacks;
  if (!stacks.Map(2 * kStackBytes)) return ENOMEM;
  SpawnRequest request{program, arguments, environment, stacks.data() + 2 * kStackBytes, 0};
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // A handler of the program must not run in a process that only looks like it.
  pthread_sigmask(SIG_BLOCK, &all, &before);
  // No exit signal: the program's SIGCHLD handler and wait() calls never see the intermediate.
  const int child = clone(StartProgram, stacks.data() + kStackBytes, CLONE_VM | CLONE_VFORK, &request);
  if (child < 0) {
    request.error = errno;
  } else {
    while (waitpid(child, nullptr, __WALL | __WCLONE) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return request.error;
}

}  // namespace gpuprobe::injector
