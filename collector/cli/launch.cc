#include "collector/cli/launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "collector/http/access.h"
#include "collector/hub/secret.h"

namespace gpuprobe::cli {
namespace {

// What programs have no use for, and everybody whom they trust could read.
constexpr std::array kSecrets = {http::kTokenVariable, hub::Secret::kVariable};
constexpr std::array kTimers = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};

}  // namespace

std::vector<std::pair<std::string, std::string>> ProbeEnvironment(const std::string& library,
                                                                  const std::string& socket, bool preload) {
  std::vector<std::pair<std::string, std::string>> environment = {
      {"CUDA_INJECTION64_PATH", library}, {"NVTX_INJECTION64_PATH", library}, {"GPUPROBE_SOCKET", socket}};
  if (preload) {
    const char* before = std::getenv("LD_PRELOAD");
    const bool has_before = before != nullptr && *before != '\0';
    environment.emplace_back("LD_PRELOAD", has_before ? absl::StrCat(before, ":", library) : library);
  }
  return environment;
}

std::array<itimerval, 3> TakeTimers() {
  std::array<itimerval, 3> timers{};
  const itimerval none{};
  for (const auto which : kTimers) setitimer(which, &none, &timers[which]);
  return timers;
}

Launched Launch(const std::vector<std::string>& command,
                const std::vector<std::pair<std::string, std::string>>& environment,
                const Inherited& inherited) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int failure[2];  // exec closes it on success; otherwise it carries exec's errno
  if (pipe2(failure, O_CLOEXEC) != 0) return {.pid = -1, .error = errno};
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(failure[0]);
    close(failure[1]);
    return {.pid = -1, .error = error};
  }
  if (pid == 0) {
    for (const char* secret : kSecrets) unsetenv(secret);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (inherited.ignores_children) std::signal(SIGCHLD, SIG_IGN);
    for (const auto which : kTimers) setitimer(which, &inherited.timers[which], nullptr);
    sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
    execvp(argv[0], argv.data());
    const int error = errno;
    (void)!write(failure[1], &error, sizeof(error));
    _exit(127);
  }
  close(failure[1]);
  Launched launched{.pid = pid, .error = 0};
  ssize_t n = 0;
  do {
    n = read(failure[0], &launched.error, sizeof(launched.error));
  } while (n < 0 && errno == EINTR);
  close(failure[0]);
  if (launched.error != 0) waitpid(pid, nullptr, 0);
  return launched;
}

}  // namespace gpuprobe::cli
