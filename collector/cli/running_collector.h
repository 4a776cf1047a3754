// The collector that records a run on this host, found in /proc by the run's directory, which it holds open.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace gpuprobe::cli {

struct RunningCollector {
  pid_t pid = 0;
  std::string directory;  // of the run, or of this host's part of it; absolute
  std::string socket;     // where it listens; that of the node's collector if it listens nowhere itself
};

// `given`: the run's directory, or the pid of one of its processes; empty: the newest of this user's runs.
// Otherwise one line with the cause and the remedy.
absl::StatusOr<RunningCollector> FindRunningCollector(const std::string& given);

}  // namespace gpuprobe::cli
