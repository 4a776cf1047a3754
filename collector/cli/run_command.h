// The part of `gpuprobe run` that the user sees as the command: starts it, forwards signals to it, waits for
// it, and outlives the collector.
//
// The collector is a child process that was forked before the command was started. It may be killed, run out
// of memory, crash or stop: the command never notices, one line says so, and the status is the command's.
// Therefore nothing here allocates between the command's start and its end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collector/cli/run_channel.h"

namespace gpuprobe::cli {

// As env, timeout and nohup use them, so that our own failure is not mistaken for the command's.
inline constexpr int kOwnFailure = 125;
inline constexpr int kNotExecutable = 126;
inline constexpr int kNotFound = 127;
// A collector's exit code when it ran out of memory.
inline constexpr int kOutOfMemory = 12;

struct CommandEnd {
  int exit_code = 0;
  int end_signal = 0;  // 0: it exited
};

// Starts `collect` in a process of its own and, once that is ready, the command. `collect` gets its end of
// the channel, prints why it cannot start, and returns the exit code of its process. `environment` is what
// the command gets besides ours; it is asked for when the collector is ready.
CommandEnd RunBesideCollector(
    const std::vector<std::string>& command,
    absl::FunctionRef<std::vector<std::pair<std::string, std::string>>()> environment,
    absl::FunctionRef<int(RunChannel channel)> collect);

}  // namespace gpuprobe::cli
