// Runs a function on the same thread, on a larger stack if the thread's own has too little room.
//
// CUDA may be initialised on a thread with a stack of 16 KiB, and starting the probe takes more than that:
// the loader looks for libcupti, CUPTI sets itself up. It has to happen on that very thread, before the
// driver continues, with the loader's locks as they are; so if little is left, the thread switches to a
// mapped stack for as long as it takes. Threads with ordinary stacks keep theirs.
//
// Thread: the starting one. Allocation: one mapping while it runs, for small stacks only. Failure: without
// memory the function runs where it is.
#pragma once

namespace gpuprobe::injector {

void RunWithRoom(void (*function)()) noexcept;

}  // namespace gpuprobe::injector
