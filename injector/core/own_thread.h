// Threads of our own in somebody else's process.
//
// They are detached, named "gpuprobe", with a stack of their own size, and every signal is blocked there, so
// that the program's handlers run on the program's threads and no signal that one of our calls raises
// (SIGPIPE, SIGXFSZ) is ever delivered. Thread: any. Allocation: the C library's, for the stack. Failure:
// false, where the process cannot have another thread.
#pragma once

namespace gpuprobe::injector {

[[nodiscard]] bool StartOwnThread(void* (*main)(void*), void* argument) noexcept;

// Names the calling thread, and keeps the guard shut for it for good: what it makes CUDA do is not the
// program's.
void BecomeOwnThread() noexcept;

}  // namespace gpuprobe::injector
