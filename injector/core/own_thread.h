// Starts our own threads in the program's process.
//
// They are detached, named "gpuprobe", have their own stack size, and block every signal, so that the
// program's handlers run on the program's threads and no signal that one of our calls raises (SIGPIPE,
// SIGXFSZ) is ever delivered. They run at ordinary priority and on any processor, whatever the program's
// thread that started them has; a lower priority (nice, SCHED_BATCH, SCHED_IDLE) is kept. So does the
// collector that one of them starts. Thread: any. Allocation: the C library's, for the stack. Failure: false
// if the process cannot have another thread, or had kMaxOwnThreads.
#pragma once

namespace gpuprobe::injector {

// One collects and sends, one writes lines until that one does, one flushes at the end; with room.
inline constexpr int kMaxOwnThreads = 8;

[[nodiscard]] bool StartOwnThread(void* (*main)(void*), void* argument) noexcept;

// Waits until the kernel has none of them, or `milliseconds` have passed (false): a thread frees its stack
// when its work is done, and leak checkers and system-call filters see that as well. Never from one of them.
bool AwaitOwnThreadsEnd(int milliseconds) noexcept;

// Call first on a thread of ours: drops inherited settings, names the thread, and keeps the guard shut on it
// for good, since its CUDA calls are not the program's.
void BecomeOwnThread() noexcept;

}  // namespace gpuprobe::injector
