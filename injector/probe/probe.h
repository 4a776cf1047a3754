// Assembles the probe when CUDA starts, and takes it down when the process ends.
//
// Each part can be tested without the others. Thread: StartProbe on the thread that initialises CUDA, with
// the driver's lock held; AnnounceLibrary in the loader. Allocation: StartProbe maps memory, once. Failure:
// the probe stays Off and says so at most once.
#pragma once

#include "proto/attach.h"

namespace gpuprobe::injector {

// In a process that starts with the library: points CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH at it,
// unless they are set. `kernel_environment` is the array of variables that the kernel made.
void AnnounceLibrary(char* const* kernel_environment) noexcept;

// Starts everything, once; later calls return at once.
void StartProbe() noexcept;

// The same in a process that has used CUDA for a while, on a thread that is not the program's. `variables`,
// as wire::kAttachEntry describes, stand for the process's environment. Prints nothing, and starts no
// collector.
wire::AttachResult AttachProbe(const char* variables) noexcept;

}  // namespace gpuprobe::injector
