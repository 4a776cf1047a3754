// Groups of NCCL's that began before the program's calls were led to us, and end after it.
//
// Separate from the scopes because it is about one moment only: relocations are patched from the probe's own
// thread while application threads call NCCL (patching.h). Within an object the start of a group is led to us
// last, so a group is torn in one way only: its start was missed, its last calls and its end are seen. Calls
// that launch nothing are held back, on threads that have not been seen between two groups since the patch,
// until it is known which they are: at a GroupEnd without a start they were in a torn group, all of whose
// calls NCCL tells its plugin, and so the held ones are dropped; at the next call they were none. An NCCL
// that tells its plugin calls as they are made (version 5 of the interface) leaves no torn groups: one whose
// first call was missed is the plugin's to its end, one whose first call was seen has all its calls held.
//
// Thread: the application's, inside the guard; FlushHeld on the probe's own when the process ends.
// Allocation: none (the batches of calls.h). Failure: without a free batch the call is reported as one
// without a kernel.
#pragma once

#include "injector/nccl/calls.h"
#include "injector/thread_state.h"

namespace gpuprobe::injector::nccl {

// True until the thread has been seen between two groups since calls were led to us.
bool MayBeInTornGroup(const ThreadState& thread) noexcept;

// The thread is between two groups for certain: what was held is reported.
void OutsideAllGroups(ThreadState& thread) noexcept;

// Keeps the batch's calls, which launched nothing, until it is known whether a torn group goes on. False:
// they cannot be kept.
bool Hold(ThreadState& thread, const CallBatch& batch) noexcept;

// A GroupEnd without a start. What was held becomes the group's batch if nobody else tells of its calls;
// null: the group is not ours.
CallBatch* TakeTornGroup(ThreadState& thread) noexcept;

// A kernel of NCCL's was launched on a thread that is inside a group and in no call: the group ended past us.
// If NCCL tells its plugin, the group is forgotten and the plugin's.
void EndOfGroupWasMissed(ThreadState& thread) noexcept;

// The process ends: what is held on any thread is reported by this one.
void FlushHeld(ThreadState& thread) noexcept;

}  // namespace gpuprobe::injector::nccl
