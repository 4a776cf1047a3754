#include "injector/probe.h"

#include <dlfcn.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "injector/lifecycle.h"
#include "injector/parts.h"
#include "injector/stream/event_ring.h"

namespace gpuprobe::injector {

namespace {

bool LibraryPath(char (&path)[PATH_MAX]) noexcept {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&StartProbe), &info) == 0 || info.dli_fname == nullptr) return false;
  return realpath(info.dli_fname, path) != nullptr;
}

bool Disabled() noexcept {
  const char* value = getenv("GPUPROBE_DISABLE");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace

void AnnounceLibrary() noexcept {
  if (Disabled()) return;
  char path[PATH_MAX];
  if (!LibraryPath(path)) return;
  setenv("CUDA_INJECTION64_PATH", path, 0);
  setenv("NVTX_INJECTION64_PATH", path, 0);
}

void StartProbe() noexcept {
  if (Disabled() || !Transition(LifecycleState::kOff, LifecycleState::kStarting)) return;
  if (!MapRings() || !WatchForks()) {
    Transition(LifecycleState::kStarting, LifecycleState::kOff);
    return;
  }
  StartParts();
  Transition(LifecycleState::kStarting, LifecycleState::kLive);
}

}  // namespace gpuprobe::injector
