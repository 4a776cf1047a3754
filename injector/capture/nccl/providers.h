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

// True when `address` is code of an NCCL: of an object that also makes communicators, as a library that wraps
// some of NCCL's calls does not.
bool IsCodeOfNccl(const void* address) noexcept;

// True when an NCCL exports a function of this name. Inside a dl_iterate_phdr callback.
bool NcclExports(const char* symbol) noexcept;

// The provider that the loader will resolve the object's call to. If only one has the function, that one. Of
// several, the first one if the object is linked to it, or, for the program itself, to one after it: then the
// first was preloaded. Else -1: only the loader knows the object's search scope. Inside a dl_iterate_phdr
// callback.
int ProviderFor(const ElfObject& object, EntryPoint entry_point) noexcept;

}  // namespace gpuprobe::injector::nccl
