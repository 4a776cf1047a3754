// Starts the command of `gpuprobe run` with the probe in its environment.
#pragma once

#include <sys/time.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace gpuprobe::cli {

// The environment that makes a program load `library` and find `socket`. LD_PRELOAD is appended to, or left
// as it is unless `preload`.
std::vector<std::pair<std::string, std::string>> ProbeEnvironment(const std::string& library,
                                                                  const std::string& socket, bool preload);

struct Launched {
  pid_t pid = -1;
  int error = 0;  // errno of exec; 0: it runs
};

// State that survives exec but is not passed to children by fork.
struct Inherited {
  sigset_t mask{};
  bool ignores_children = false;
  std::array<itimerval, 3> timers{};  // ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF
};
// This process's timers (alarm, setitimer), which it then no longer has.
std::array<itimerval, 3> TakeTimers();

// Forks and executes; the command gets our streams and `inherited`.
Launched Launch(const std::vector<std::string>& command,
                const std::vector<std::pair<std::string, std::string>>& environment,
                const Inherited& inherited);

}  // namespace gpuprobe::cli
