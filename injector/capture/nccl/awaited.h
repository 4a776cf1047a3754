// Calls whose kernels NCCL launches later, from a thread of its own: those of communicators that do not
// block.
//
// Separate from the scopes, in whose frames a call lives while it is made: these batches outlive the call.
// NCCL refuses a call on such a communicator while the one before is in progress, so a communicator has one
// batch at most, and the next call on it says that the batch is complete. Else the probe's thread reports it:
// with its kernels at its second look, if none came since the first; without any after kLooksWithoutKernel of
// them. A kernel that comes still later is told on its own.
//
// Thread: a batch is put here by the application's, its kernels by NCCL's, and it is taken by whichever of
// the application's and the probe's is first. Allocation: none; kAwaited places. Locking: none; who takes a
// batch spins for as long as NCCL's thread notes a launch (tens of nanoseconds), a bounded number of times,
// and leaves it to the next look otherwise. Failure: without a place the call is reported without its kernel.
#pragma once

#include <atomic>
#include <cstdint>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

inline constexpr int kAwaited = 32;  // as many as there are batches
inline constexpr uint32_t kLooksWithoutKernel = 4;

struct Awaited;

// The batch (of the pool) is about to be handed to NCCL. Null: no place. One of the next two follows.
Awaited* Await(ThreadState& thread, CallBatch* batch) noexcept;

// NCCL has it: the caller does not touch the batch any more.
void LeaveAwaited(Awaited* place) noexcept;

// The batch was launched or refused on the calling thread after all: it is the caller's again. Null, if
// NCCL's thread notes something for too long: then it stays awaited.
CallBatch* StopAwaiting(Awaited* place) noexcept;

// The communicator is used again or ends: what it was about has been launched.
void ResolveAwaited(ThreadState& thread, const void* handle) noexcept;

// A kernel of NCCL's was launched on a thread that no call is on. False when no batch waits for it.
bool NoteAwaitedLaunch(ThreadState& thread, const SeenLaunch& launch) noexcept;

// Calls `tell` with the batch that the last launch on this thread was noted for, if it still waits.
void TellAwaited(const ThreadState& thread, void (*tell)(CallBatch& batch, const void* argument),
                 const void* argument) noexcept;

// From the probe's thread at every flush, and, with `final`, when the process ends.
void LookAtAwaited(ThreadState& thread, bool final) noexcept;

}  // namespace gpuprobe::injector::nccl
