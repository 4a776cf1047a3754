// NCCL groups that were already open when we patched the program (patching.h), so our wrappers see only some
// of their calls.
//
// The wrappers may miss any part of such a group: its start, some calls, its end. Whatever is seen of it, by
// wrapper or plugin, is collected in one batch per thread and reported once:
//   - A call that launched nothing although it should have is in a group whose start we missed. It is held,
//   on threads that have not been seen between two groups since the program was patched, or where NCCL said
//   that the group goes on (version 5 of its plugin interface); the next calls join it.
//   - An NCCL kernel launched outside of all wrappers, on a thread with held calls or an open group, means
//   that the group has ended without our seeing it. The kernel carries those calls.
//   - What NCCL reports of the launch is compared with the batch: a call that is in it was seen by a wrapper;
//   one that is not went past the wrappers and is inserted ahead of those that were seen (plugin.h).
// The batch is reported when the group's end is seen, else at the thread's next call, else by the probe's
// thread. A launch proves that the group has ended, and overrides the counted depth (scopes.cc).
//
// Thread: the application's, inside the guard; FlushHeld and ReportEndedGroups on the probe's own.
// Allocation: none (the batches of calls.h). Failure: without a free batch the call is reported as one
// without a kernel.
#pragma once

#include "injector/capture/nccl/calls.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// True until the thread has been seen between two groups since the program was patched.
bool MayBeInTornGroup(const ThreadState& thread) noexcept;

// The thread is certainly between two groups: reports what was held.
void OutsideAllGroups(ThreadState& thread) noexcept;

// Keeps the batch's calls, which launched nothing, with those held before. False: they cannot be kept.
bool Hold(ThreadState& thread, const CallBatch& batch) noexcept;

// The thread's group, or one inside it, is about to end: held calls belong to the same group, and what NCCL
// reports of calls that we missed finds a batch.
void JoinTornGroup(ThreadState& thread) noexcept;

// An NCCL kernel was launched on a thread that is in no call. True when it ends a group that the wrappers saw
// some part of: the launch is noted there.
bool NoteLaunchPastUs(ThreadState& thread, const SeenLaunch& launch) noexcept;

// NCCL says that this thread's group has ended, and no wrapper saw it.
void NoteEndPastUs(ThreadState& thread) noexcept;

// At the thread's next call: nothing more can come of a group whose end we missed.
void ReportEndedGroup(ThreadState& thread) noexcept;

// Holds the group whose end we missed for its own thread. The batch is null when the probe's thread has
// reported it, or no group has ended.
class EndedGroup {
 public:
  explicit EndedGroup(ThreadState& thread) noexcept;
  ~EndedGroup();
  EndedGroup(const EndedGroup&) = delete;
  EndedGroup& operator=(const EndedGroup&) = delete;
  CallBatch* batch() const noexcept { return batch_; }

 private:
  ThreadCalls& calls_;
  CallBatch* batch_;
};

// From the probe's thread, at every flush: reports at its second look the groups whose end we missed and
// whose threads have made no call since.
void ReportEndedGroups(ThreadState& thread) noexcept;

// For a torn group that NCCL reports nothing about: kernels beyond one for each operation and communicator
// seen carry calls that we missed; those came first. They are known only by their names.
void LeaveUnseenKernels(CallBatch& batch) noexcept;

// The process ends: this thread reports what is held on any.
void FlushHeld(ThreadState& thread) noexcept;

}  // namespace gpuprobe::injector::nccl
