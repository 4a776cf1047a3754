// The sandbox part: ends the recording before the program installs a system-call filter that may kill it.
//
// Patches the program's calls of prctl and syscall, with which filters are installed (libseccomp's, too).
// What goes through them by a system call of its own is not seen. The calls pass at the cost of two
// comparisons.
#pragma once

#include "injector/core/part.h"

namespace gpuprobe::injector {

extern const Part kSandboxPart;

}  // namespace gpuprobe::injector
