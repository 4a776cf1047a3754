// Runs a function where the stack has room, on the same thread.
//
// CUDA may be initialised on a thread with a stack of 16 KiB, and starting the probe takes more than that:
// the loader looks for libcupti, CUPTI sets itself up. It has to happen on that very thread, before the
// driver goes on, with the loader's locks as they are; so where little is left, the stack is exchanged for a
// mapped one for as long as it takes. Threads with ordinary stacks keep theirs.
//
// Thread: the starting one. Allocation: one mapping while it runs, for small stacks only. Failure: without
// memory the function runs where it is.
#pragma once

namespace gpuprobe::injector {

void RunWithRoom(void (*function)()) noexcept;

}  // namespace gpuprobe::injector
