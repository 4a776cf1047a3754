// The part of `gpuprobe run` that the user sees as the command: starts it, forwards signals to it, waits for
// it, and outlives the collector.
//
// The collector is a child process that was forked before the command was started. It may be killed, run out
// of memory, crash or stop: the command never notices, one line says so, and the status is the command's.
// Therefore nothing here allocates between the command's start and its end.
//
// Under a launcher, the collector records the commands of several `gpuprobe run`s (rank_meeting.h). Each
// returns when its command has ended, so that the launcher learns at once which rank failed; the last one
// waits for the report, because some launchers kill what is left when the last rank has ended.
//
// To our parent, we are the command. We forward every signal to it, with the value of sigqueue, except
// signals to our process group, which reach the command anyway (group_witness.h). The command has the signal
// mask, ignored signals, pending signals and timers that we were started with. When it stops, we stop by the
// same signal, and we continue with it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collector/cli/rank_meeting.h"
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
  int end_signal = 0;              // 0: it exited
  bool collector_goes_on = false;  // with the commands of other ranks
};

// What the command gets besides our environment; asked for when the collector is ready.
using CommandEnvironment = absl::FunctionRef<std::vector<std::pair<std::string, std::string>>()>;

// Starts `collect` in a process of its own and, once that is ready, the command. `collect` gets its end of
// the channel, prints why it cannot start, and returns the exit code of its process; `ranks`, if not null, is
// its own there.
CommandEnd RunBesideCollector(const std::vector<std::string>& command, CommandEnvironment environment,
                              absl::FunctionRef<int(RunChannel channel)> collect, RankListener* ranks);
// The same beside the collector of another `gpuprobe run`, which we have joined.
CommandEnd RunJoined(const std::vector<std::string>& command, CommandEnvironment environment,
                     JoinedCollector collector);

}  // namespace gpuprobe::cli
