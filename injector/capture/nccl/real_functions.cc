#include "injector/capture/nccl/real_functions.h"

#include <dlfcn.h>

#include "injector/capture/loader/elf_object.h"

namespace gpuprobe::injector::nccl {

constinit std::atomic<void*> real_functions[kWays][kEntryPoints] = {};

void* ResolveExported(int way, EntryPoint entry_point) noexcept {
  const auto index = static_cast<size_t>(entry_point);
  const char* names[] = {kSymbolNames[index], kProfilingSymbolNames[index]};
  // The requested name first; NCCL has both at one address.
  if (way == kExportedProfilingWay) {
    const char* first = names[1];
    names[1] = names[0];
    names[0] = first;
  }
  void* found = nullptr;
  for (const char* name : names) {
    if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  }
  // RTLD_NEXT sees what was linked at start only, not an NCCL that came later with a dlopened module.
  for (const char* name : names) {
    if (found == nullptr) found = FindInLoadedObjects(name);
  }
  if (found != nullptr) real_functions[way][index].store(found, std::memory_order_relaxed);
  return found;
}

}  // namespace gpuprobe::injector::nccl
