#include "collector/cli/launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace fs = std::filesystem;

absl::StatusOr<std::string> FindLibrary() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError("/proc/self/exe cannot be read");
  const fs::path folder = program.parent_path();
  std::string looked;
  for (const char* place : {"", "../lib", "../injector"}) {
    const fs::path candidate = (folder / place / "libgpuprobe.so").lexically_normal();
    if (fs::exists(candidate, error)) return candidate.string();
    absl::StrAppend(&looked, looked.empty() ? "" : ", ", candidate.parent_path().string());
  }
  return absl::NotFoundError(absl::StrCat("libgpuprobe.so not found; looked in ", looked));
}

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

Launched Launch(const std::vector<std::string>& command,
                const std::vector<std::pair<std::string, std::string>>& environment, const sigset_t& mask,
                bool ignores_children) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int failure[2];  // closes by itself when exec succeeds, else brings its errno
  if (pipe2(failure, O_CLOEXEC) != 0) return {.pid = -1, .error = errno};
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(failure[0]);
    close(failure[1]);
    return {.pid = -1, .error = error};
  }
  if (pid == 0) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    if (ignores_children) std::signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
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
