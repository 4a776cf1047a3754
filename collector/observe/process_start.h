// With what a process was started, as /proc says.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace gpuprobe::observe {

// Empty for a process that may not be read.
std::map<std::string, std::string> VariablesOf(pid_t pid);
std::vector<std::string> CommandOf(pid_t pid);

}  // namespace gpuprobe::observe
