// What /proc says of a process that is attached to.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuprobe::cli::attach {

// The entries of a folder that are numbers: processes, threads, descriptors.
std::vector<pid_t> NumbersIn(const std::string& folder);
std::vector<pid_t> ThreadsOf(pid_t pid);
// None of its threads lives, whether its parent has asked for its status or not.
bool HasEnded(pid_t pid);
// A libgpuprobe.so in it has its thread.
bool IsRecorded(pid_t pid);

}  // namespace gpuprobe::cli::attach
