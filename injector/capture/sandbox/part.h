// The sandbox part: ends the recording before the program installs a system-call filter that may kill it.
//
// The program's calls of prctl and syscall, with which filters are installed (libseccomp's, too), lead to us,
// and so do these functions if they are looked up by dlsym (capture/loader/libc_functions.h). They pass at
// the cost of two comparisons. Not seen is a filter that is installed by a system call of the program's own,
// by a library's constructor while the library is being opened, or through a pointer from before CUDA's
// start.
#pragma once

#include "injector/core/part.h"

namespace gpuprobe::injector {

extern const Part kSandboxPart;

}  // namespace gpuprobe::injector
