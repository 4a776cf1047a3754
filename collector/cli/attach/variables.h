// The variables of a process that runs which the library looks at, read from outside.
//
// Inside, another thread may be changing the environment while it is read. From outside, a pointer that has
// become wrong is an error, and no fault.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuprobe::cli::attach {

// "NAME=value", as the process has them now; as it was started with them if that cannot be read.
// `settings`, of the same form, stand instead of the process's.
std::vector<std::string> VariablesFor(pid_t pid, const std::vector<std::string>& settings);

}  // namespace gpuprobe::cli::attach
