// The symbols that the CUDA driver looks up, and what happens when the loader brings the library in. Nothing
// else.
#include "injector/probe/probe.h"

extern "C" {

// Called by the driver inside cuInit when CUDA_INJECTION64_PATH names this library. Returns 1, success,
// whether or not the probe started.
__attribute__((visibility("default"))) int InitializeInjection() noexcept {
  gpuprobe::injector::StartProbe();
  return 1;
}

// Called by `gpuprobe attach`, once, on a thread that it has made for this and that has all signals blocked.
// Returns a number of proto/attach.h. NOLINTNEXTLINE(readability-identifier-naming): what it is exported as
__attribute__((visibility("default"))) int gpuprobe_attach(const char* variables) noexcept {
  return static_cast<int>(gpuprobe::injector::AttachProbe(variables));
}
}

namespace {

// Runs in every process that LD_PRELOAD brings the library into: two environment variables, no thread, no
// file, no socket.
__attribute__((constructor)) void OnLoad(int argc, char** argv, char**) noexcept {
  gpuprobe::injector::AnnounceLibrary(argv + argc + 1);
}

}  // namespace
