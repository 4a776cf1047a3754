// Injection mode: redirects the program's calls into NCCL, and its look-ups of NCCL by dlsym, to our wrappers
// by patching relocations. Slots of getenv get the one that answers for our variables (environment.h).
//
// Patched: a slot that holds the address of an NCCL function in some loaded object (a provider: libnccl, or a
// wrapper library of the program's), and an unresolved, lazily bound slot of such a name if there is only one
// provider; slots of the C library's functions (capture/loader/libc_functions.h). Left alone: our own slots;
// those of libcuda, libcupti, the C library and the loader; libnccl's of NCCL's functions; slots that already
// point to us; slots that hold something we do not know. Thread: one at a time (a second
// one returns at once). Allocation: none. Failure: a call that is not patched is not seen; nothing breaks.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

// Scans all objects and patches. From InitializeInjection. Returns how many slots were written.
uint32_t PatchLoadedObjects() noexcept;

// From the probe's thread, at every flush and when it was asked for: scans again if objects appeared since
// the last scan, or if that one had to postpone something. Costs a look at the first object of the linker's
// list otherwise. A scan takes 15 us over 10 small objects, 0.3 to 3.6 ms over a million relocations (six
// libraries of 100 MB), in pieces between which the linker's lock is free.
void PatchNewObjects() noexcept;

// On the application's thread, inside its first dlsym after a dlopen: patches objects that were loaded since
// the last scan, so that a library that the program has just opened is patched before the program first calls
// into it. A scan of the new objects only: 20 us where the dlopen took 110. Left to the probe's thread if
// this one is confined to certain system calls.
void PatchBeforeUse() noexcept;

// From an application thread, when an NCCL kernel bypassed our wrappers, or something was made that a newly
// opened library needs before it can call NCCL (new_library_hook of injector/capture/cupti/callbacks.h):
// wakes the probe's thread, once until it has looked. Until then no wrapper sees the object's calls; NCCL's
// reports to its plugin, else the kernels' names, stand in for them, and groups in progress are put together
// from both (torn_groups.h).
void AskForScan() noexcept;

// Registers the copy of NCCL that contains `address`, if it is one: for a program that looks up functions by
// dlsym as soon as it has opened NCCL. On the application's thread, inside its dlsym; walks the linker's
// list, a few microseconds.
void MeetProviderAt(const void* address) noexcept;

// Bumped when a scan after the first one patches its first call, and when the last of its repetitions is
// done: threads may be inside an NCCL group whose start we missed. Odd while calls are being patched, or the
// loader may still undo it.
uint32_t LatePatches() noexcept;

}  // namespace gpuprobe::injector::nccl

extern "C" {

// What patched `dlsym` slots hold. Passes everything but NCCL's names on by a jump, so that the real dlsym
// sees the caller's return address, which is what RTLD_NEXT and RTLD_DEFAULT mean.
void* gpuprobe_dlsym(void* handle, const char* name);  // NOLINT(readability-identifier-naming)
// What patched `dlopen` slots hold: notes the call, and passes it on by a jump likewise.
void* gpuprobe_dlopen(const char* file, int mode);  // NOLINT(readability-identifier-naming)
}
