// Looks at this host, a command and a process for `gpuprobe doctor`. Nothing is changed: no file is made, no
// process started, and CUDA is not loaded. What may hang is waited for no longer than kPatience.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "collector/cli/doctor/facts.h"

namespace gpuprobe::cli::doctor {

inline constexpr std::chrono::milliseconds kPatience{2000};

// A command that was given (none: empty), and where it would be recorded (empty: not said).
Facts GatherForCommand(const std::vector<std::string>& words, const std::string& out);
// REQUIRES: the process exists.
Facts GatherForProcess(pid_t pid);

// Parts of them.
Variables OwnVariables();
LibraryFacts LookAtLibrary();
CommandFacts LookAtCommand(const std::vector<std::string>& words, size_t gpus);
// `root`: of the process whose variables they are, as a prefix of paths.
EnvironmentFacts LookAtEnvironment(Variables variables, const std::vector<std::string>& command,
                                   const std::string& root);
CuptiFacts LookAtCupti(const Facts& facts);
GpuFacts LookAtGpus();
SandboxFacts LookAtSandbox();
// The filters of a process; nullopt: not known.
std::optional<Filters> FiltersOf(const std::string& process);
LimitFacts LookAtLimits();
std::vector<SocketPlace> LookAtSockets(const Variables& variables, uid_t user);
RecordFacts LookAtRecords(const std::string& path);
HostFacts LookAtHosts(const std::vector<std::string>& command, const Variables& variables);
ClockFacts LookAtClock();
StackFacts LookAtStacks();
ProcessFacts LookAtProcess(pid_t pid, const std::string& own_library);

}  // namespace gpuprobe::cli::doctor
