// Starts the command of `gpuprobe run` with the probe in its environment.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

// libgpuprobe.so beside the program: in its folder, ../lib or ../injector. NotFound says where it looked.
absl::StatusOr<std::string> FindLibrary();

// The environment that makes a program load `library` and find `socket`. LD_PRELOAD is appended to, or left
// as it is unless `preload`.
std::vector<std::pair<std::string, std::string>> ProbeEnvironment(const std::string& library,
                                                                  const std::string& socket, bool preload);

struct Launched {
  pid_t pid = -1;
  int error = 0;  // errno of exec; 0: it runs
};

// Forks and executes; streams are inherited, signals as they were before: `mask`, and SIGCHLD ignored or not.
Launched Launch(const std::vector<std::string>& command,
                const std::vector<std::pair<std::string, std::string>>& environment, const sigset_t& mask,
                bool ignores_children = false);

}  // namespace gpuprobe::cli
