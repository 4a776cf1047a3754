// The two functions for which the program's own replacements must be called, if it has any: getenv and free.
//
// All other imports of this library are bound to the C library itself (bind_to_libc.cc), so that a program's
// own function named `send` or `poll` is never called for it. But the answer to getenv is the program's to
// give, and memory that a library of the program allocated goes back to the program's allocator.
//
// Thread: FindProgramFunctions on the starting thread, before others use them. Allocation: none. Failure: the
// C library's.
#pragma once

namespace gpuprobe::injector {

struct ProgramFunctions {
  char* (*getenv)(const char* name);
  void (*free)(void* memory);
};
extern ProgramFunctions program_functions;

// Looks both up as the program's libraries find them. Not under the dynamic linker's lock.
void FindProgramFunctions() noexcept;

}  // namespace gpuprobe::injector
