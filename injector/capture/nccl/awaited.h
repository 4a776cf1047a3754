// Calls on non-blocking communicators, whose kernels NCCL launches later from a thread of its own.
//
// Unlike the scopes, whose calls live in the wrapper's frame, these batches outlive the call. NCCL refuses a
// call on such a communicator while the previous one is in progress, so a communicator has at most one batch,
// and the next call on it shows that the batch is complete. Otherwise the probe's thread reports it: with its
// kernels at the second look, if none came since the first; without any after kLooksWithoutKernel looks. A
// kernel that comes still later is reported on its own.
//
// Thread: the application's adds a batch, NCCL's adds its kernels, and the application's or the probe's,
// whichever comes first, takes it. Allocation: none; kAwaited places. Locking: none; a thread that takes a
// batch spins, a bounded number of times, while NCCL's thread notes a launch (tens of nanoseconds), and
// otherwise leaves the batch to the next look. Failure: without a place the call is reported without its
// kernel.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

inline constexpr int kAwaited = 32;  // as many as there are batches
inline constexpr uint32_t kLooksWithoutKernel = 4;

struct Awaited;

// The batch (from the pool) is about to be handed to NCCL. Null: no place. One of the next two must follow.
Awaited* Await(ThreadState& thread, CallBatch* batch) noexcept;

// NCCL has it: the caller does not touch the batch any more.
void LeaveAwaited(Awaited* place) noexcept;

// The batch was launched or refused on the calling thread after all: it is the caller's again. Null if
// NCCL's thread holds it for too long: then it stays awaited.
CallBatch* StopAwaiting(Awaited* place) noexcept;

// The communicator is used again or ends, so its pending work has been launched.
void ResolveAwaited(ThreadState& thread, const void* handle) noexcept;

// An NCCL kernel was launched on a thread that is in no call. False when no batch waits for it.
bool NoteAwaitedLaunch(ThreadState& thread, const SeenLaunch& launch) noexcept;

// Calls `tell` with the batch that this thread's last launch was added to, if it still waits.
void TellAwaited(const ThreadState& thread, void (*tell)(CallBatch& batch, const void* argument),
                 const void* argument) noexcept;

// From the probe's thread at every flush, and, with `final`, when the process ends.
void LookAtAwaited(ThreadState& thread, bool final) noexcept;

}  // namespace gpuprobe::injector::nccl
