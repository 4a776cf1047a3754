// The variables by which CUDA, NVTX and NCCL find this library, without changing an environment in use.
//
// `environ` belongs to the program. Perl reallocates the array, other programs free it, keep a pointer to it
// or edit it in place, and each of these breaks if we replace the array. So variables reach libraries in two
// ways:
// - Before main, while `environ` is still the array that the kernel made: a longer copy takes its place.
//   Everything that runs later starts from that copy: main gets it as its third argument, and the auxiliary
//   vector, which some programs look for behind the array, follows it.
// - Afterwards: the answer to getenv. Patched slots (injector/capture/nccl/patching.cc) call AnsweringGetenv,
//   which asks the program's getenv first. The array, and what children inherit, stay as they are.
//
// Thread: AddBeforeMain in the loader, AnswerVariable on the starting thread, AnsweringGetenv on any.
// Allocation: one mapping in AddBeforeMain. Failure: the variable is not found.
#pragma once

#include <cstddef>

namespace gpuprobe::injector {

struct Variable {
  const char* name;
  const char* value;
};

// Adds the variables that are not set, if `environ` is `kernel_array`, which the auxiliary vector follows,
// and no other thread runs.
bool AddBeforeMain(char* const* kernel_array, const Variable* variables, size_t count) noexcept;

// From now on AnsweringGetenv returns `value` for `name` if the environment does not have it. Both must
// outlive the process. False: too many.
bool AnswerVariable(const char* name, const char* value) noexcept;

// A variable of the program. What its getenv returns; or, once UseCopyOfEnvironment was called, what the copy
// has: in a process that has run for a while, other threads may change the environment at any moment.
const char* ReadVariable(const char* name) noexcept;
// `variables`: "NAME=value", ended by null; they outlive the process. Before any other thread of ours runs.
void UseCopyOfEnvironment(const char* const* variables) noexcept;

// What the program's own getenv returns, else the answer.
char* AnsweringGetenv(const char* name) noexcept;

}  // namespace gpuprobe::injector
