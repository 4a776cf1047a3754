// Assembles the probe when CUDA starts, and takes it down when the process ends.
//
// Each part can be tested without the others. Thread: StartProbe on the thread that initialises CUDA, with
// the driver's lock held; AnnounceLibrary in the loader. Allocation: StartProbe maps memory, once. Failure:
// the probe stays Off and says so at most once.
#pragma once

namespace gpuprobe::injector {

// In a process that starts with the library: points CUDA_INJECTION64_PATH and NVTX_INJECTION64_PATH at it,
// unless they are set. `kernel_environment` is the array of variables that the kernel made.
void AnnounceLibrary(char* const* kernel_environment) noexcept;

// Starts everything, once; later calls return at once.
void StartProbe() noexcept;

}  // namespace gpuprobe::injector
