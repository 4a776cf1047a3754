// The loaded objects that define NCCL's functions, each with its own set of wrappers ("way in").
//
// Used by patching.h, and by look-ups through dlsym on application threads. Thread: Add inside a
// dl_iterate_phdr callback, which the linker runs on one thread at a time; the rest by any. Allocation: none.
// Failure: beyond kMaxProviders copies a new one is not intercepted.
#pragma once

#include "injector/capture/loader/elf_object.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/real_functions.h"

namespace gpuprobe::injector::nccl {

// Enters the object if it defines NCCL's calls: finds all its functions.
void AddProvider(const ElfObject& object) noexcept;

// The way whose provider has `entry_point` at `address`; -1 if none.
int ProviderOf(EntryPoint entry_point, const void* address) noexcept;

// The first provider, in load order, that has the function; -1 if there is none. One that wraps some NCCL
// functions may lack others.
int FirstProviderOf(EntryPoint entry_point) noexcept;

void ClearProvidersForTest() noexcept;

}  // namespace gpuprobe::injector::nccl
