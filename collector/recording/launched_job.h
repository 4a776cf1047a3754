// What the launcher of a process that we did not start says of its job's hosts.
#pragma once

#include <optional>
#include <string>

#include "collector/hub/mirror.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::recording {

struct LaunchedJob {
  bool spans_hosts = false;
  std::optional<hub::Meeting> meeting;  // nullopt: there is none, or the process is no rank
  std::string token;                    // GPUPROBE_HUB_TOKEN
};

// Reads the process's command line and environment. Empty if it is another user's, or in another PID
// namespace. `hub`: of jobs that name none (HOST or HOST:PORT); empty: there is none.
LaunchedJob LaunchedJobOf(const v1::Identity& identity, const std::string& hub = "");

// Which start of the job this is, by its launcher (torchrun --max-restarts, Slurm's requeue); empty: not
// known.
std::string AttemptOf(const v1::Identity& identity);

// The parent of a process in our PID namespace; 0: not known.
uint32_t ParentOf(uint32_t pid);

}  // namespace gpuprobe::recording
