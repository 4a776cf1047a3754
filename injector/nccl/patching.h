// Injection mode: leads the program's calls into NCCL, and its look-ups of NCCL by dlsym, to our wrappers by
// patching relocations.
//
// What is patched: a slot that holds the address of an NCCL function of some loaded object (a provider:
// libnccl, or a wrapper library of the program's), and a lazily bound slot of such a name that was not
// resolved yet, which will go to the first provider in load order. What is left alone: our own slots, those
// of libnccl, libcuda, libcupti, the C library and the loader; slots that already lead to us; slots that hold
// something we do not know. Thread: one at a time (a second one returns at once). Allocation: none. Failure:
// a call that is not patched is not seen; nothing breaks.
#pragma once

#include <cstdint>

namespace gpuprobe::injector::nccl {

// Scans all objects and patches. From InitializeInjection, and from a dlsym for an NCCL name of an object
// that was not seen yet. Returns how many slots were written.
uint32_t PatchLoadedObjects() noexcept;

// From the probe's thread, at every flush: scans again if objects appeared since the last scan, or if that
// one had to postpone something. Costs a look at the first object of the linker's list otherwise.
void PatchNewObjects() noexcept;

// From an application thread, when something was made that a library which has just been opened needs before
// it can call NCCL (new_library_hook of injector/cupti/callbacks.h): scans at once if objects appeared since
// the last scan, so that their first calls are not missed. Takes what dl_iterate_phdr takes, the linker's
// list lock, which nobody holds for longer than it takes to change the list. Measured: 14 ns when there is
// nothing new; a scan 15 us over 10 small objects, 0.3 to 3.6 ms over a million relocations (six libraries of
// 100 MB).
void PatchObjectsThatAppeared() noexcept;

// Forgets the providers. Slots stay as they are.
void ResetPatchingForTest() noexcept;

}  // namespace gpuprobe::injector::nccl

extern "C" {

// What patched `dlsym` slots hold. Passes everything but NCCL's names on by a jump, so that the real dlsym
// sees the caller's return address, which is what RTLD_NEXT and RTLD_DEFAULT mean.
void* gpuprobe_dlsym(void* handle, const char* name);  // NOLINT(readability-identifier-naming)
}
