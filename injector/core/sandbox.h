// System-call filters (seccomp): a sandbox that may end the process at a call that only the probe makes.
//
// A filter cannot be asked what it would do, so the probe stays out of processes that have one, unless
// GPUPROBE_IN_SANDBOX=1 says that it allows what the probe needs (docs/loading.md). A container's filter,
// which its first process has as well, does not count: containers refuse calls and do not kill. A filter that
// the program installs later is read before it is installed (capture/sandbox/).
//
// Thread: any; IsInSandbox before the probe has started, one at a time. Allocation: none. Failure: without
// /proc there is no sandbox; a filter that cannot be read may kill.
#pragma once

#include <atomic>

struct sock_fprog;

namespace gpuprobe::injector {

// Whether the calling thread has filters that PID 1 does not have. Makes only calls that loading a library
// makes, too.
bool IsInSandbox() noexcept;

// Whether the filter may end the process or a thread, or hand the call to another process, rather than allow
// or refuse it.
bool MayKill(const sock_fprog* filter) noexcept;

// Ends the recording before such a filter takes effect; returns when the probe makes no more system calls, or
// after the longest time that the program may be delayed at exit. Null: nothing is recorded.
extern std::atomic<void (*)() noexcept> end_before_filter;

}  // namespace gpuprobe::injector
