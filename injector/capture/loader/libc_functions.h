// The C library's functions whose calls we redirect: dlsym, dlopen, getenv, prctl and syscall.
//
// A slot that holds the C library's function gets ours. So does a lazily bound one that is not resolved yet,
// unless some library defines a function of that name itself: then only the loader knows whose this slot will
// get, and it is left until it holds the C library's.
//
// Where a program without position-independent code takes such a function's address, the address is a stub
// in the program that jumps through one of its slots, for us as well. So before anything is patched, this
// library's own slots get the function behind the stub: else our call would come back to us for ever.
//
// Thread: RedirectLibcFunction on the starting thread, before the first scan; NoteDefinitions and
// LibcReplacement inside a scan; the rest any. Allocation: none. Failure: calls stay as they are.
#pragma once

#include "injector/capture/loader/elf_object.h"
#include "injector/capture/loader/relocations.h"

namespace gpuprobe::injector::nccl {

// Redirects the program's calls of `name` to `ours`; with `for_look_ups`, also what it looks up by dlsym.
// `address` is where calls of this library go, or the program's. Returns the function behind it.
void* RedirectLibcFunction(const char* name, void* address, void* ours, bool for_look_ups) noexcept;

// Notes whether this object, besides the C library, defines one of them.
void NoteDefinitions(const ElfObject& object) noexcept;

bool IsRedirected(const char* symbol) noexcept;

// The new value of a slot of such a symbol, null: leave it.
void* LibcReplacement(const Slot& slot) noexcept;

// What to return for a look-up of `name` that found `found`; null: `found` itself.
void* AnswerForLookUp(const char* name, const void* found) noexcept;
// False: AnswerForLookUp answers null for that name.
bool ConcernsLookUps(const char* name) noexcept;

}  // namespace gpuprobe::injector::nccl
