// Reads memory that the program passes by pointer, although the pointer may be dangling or unmapped, or a
// text unterminated.
//
// NVTX's functions do nothing unless a tool listens, so a program may call them with such pointers for years
// and never notice. Memory that cannot disappear during the call is read in place, at no cost: constants of
// the program's own file, which cannot be unloaded, and the calling thread's stack. The kernel copies
// everything else (injector/base/own_memory.h), which costs a system call. Example: "forward" and an
// attributes struct in the caller's frame are read in place; the text of a std::string on the heap is copied.
//
// Thread: any application thread, for its own state. Allocation: none. Failure: says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

// Copies `bytes` bytes. False when they cannot be read, all of them.
bool CopyFromProgram(ThreadState& thread, const void* from, void* to, size_t bytes) noexcept;

// The text at `from`, at most `capacity` bytes of it: where it lies, or a copy in `space`. False when it
// cannot be read up to its end. Null has no text.
bool TextOfProgram(ThreadState& thread, const char* from, char* space, size_t capacity,
                   std::string_view* text) noexcept;

// Whether the calling thread runs on its own stack, and `below` is on the same one, further down than any
// frame that is in use. Alternate stacks of signal handlers and fibers' stacks are others.
bool IsBelowOwnStackInUse(ThreadState& thread, const void* below) noexcept;

}  // namespace gpuprobe::injector
