// Loads the library into a process that runs, and calls its function gpuprobe_attach there.
//
// One thread of the process, which waits in a system call, is led through a stub (stub.h) that makes another
// thread; it misses some tenths of a millisecond of its wait. That other thread loads the library. Nothing of
// the process is changed but that, and some bytes behind the code of one of its libraries, where no code is.
//
// Linux on x86-64 with glibc.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gpuprobe::cli::attach {

// `library`: a path in the process's own mount namespace. `variables`: "NAME=value", which the library takes
// for the process's environment. OK: it records. Else the reason, with the remedy; the process goes on as
// before.
absl::Status Inject(pid_t pid, const std::string& library, const std::vector<std::string>& variables);

}  // namespace gpuprobe::cli::attach
