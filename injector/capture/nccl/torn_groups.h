// Groups of NCCL's of which the wrappers see a part only: calls are led to them (patching.h) while
// application threads are in the middle of groups.
//
// Separate from the scopes because it is about these moments only. Any part of a group may go past the
// wrappers: its start, some calls, its end. What is seen of it, by whomever, meets in one batch a thread, and
// is reported once:
//   - A call that launched nothing although it should have is in a group that began past us. It is held, on
//   threads that have not been seen between two groups since calls were led to us, or where NCCL said that
//   the group goes on (version 5 of its plugin interface); the next ones join it.
//   - A kernel of NCCL's that is launched outside of all wrappers on a thread where calls are held, or a
//   group is open, says that the group has ended past us. The kernel is theirs.
//   - What NCCL tells of the launch is held against the batch: a call that is in it is the wrapper's, one
//   that is not went past the wrappers and joins it, ahead of those that were seen (plugin.h).
// The batch is reported when the group's end is seen, else at the thread's next call, else by the probe's
// thread. A launch is the proof of an end: the depth that was counted gives way to it (scopes.cc).
//
// Thread: the application's, inside the guard; FlushHeld and ReportEndedGroups on the probe's own.
// Allocation: none (the batches of calls.h). Failure: without a free batch the call is reported as one
// without a kernel.
#pragma once

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// True until the thread has been seen between two groups since calls were led to us.
bool MayBeInTornGroup(const ThreadState& thread) noexcept;

// True while calls of a torn group are held for this thread.
bool HoldsCalls(const ThreadState& thread) noexcept;

// The thread is between two groups for certain: what was held is reported.
void OutsideAllGroups(ThreadState& thread) noexcept;

// Keeps the batch's calls, which launched nothing, with those held before. False: they cannot be kept.
bool Hold(ThreadState& thread, const CallBatch& batch) noexcept;

// A GroupEnd without a start: what was held becomes the group's batch; null: nothing was.
CallBatch* TakeTornGroup(ThreadState& thread) noexcept;

// The thread's group is about to end, or an inner one of it: calls that were held are of the same group, and
// what NCCL tells of calls that went past us finds a batch.
void JoinTornGroup(ThreadState& thread) noexcept;

// A kernel of NCCL's was launched on a thread that is in no call. True when it ends a group that the wrappers
// saw something of: it is noted there.
bool NoteLaunchPastUs(ThreadState& thread, const SeenLaunch& launch) noexcept;

// NCCL says that the group that this thread was in has ended, and no wrapper saw it.
void NoteEndPastUs(ThreadState& thread) noexcept;

// The thread's next call: nothing more can come of a group that ended past us.
inline bool EndedPastUs(const ThreadState& thread) noexcept { return thread.nccl_group_ended; }
void ReportEndedGroup(ThreadState& thread) noexcept;

// The group that ended past us, for its own thread, while this lives. Null when the probe's thread has
// reported it, or none has ended.
class EndedGroup {
 public:
  explicit EndedGroup(ThreadState& thread) noexcept;
  ~EndedGroup();
  EndedGroup(const EndedGroup&) = delete;
  EndedGroup& operator=(const EndedGroup&) = delete;
  CallBatch* batch() const noexcept { return batch_; }

 private:
  ThreadState& thread_;
  CallBatch* batch_;
};

// From the probe's thread, at every flush: reports the groups that ended past us and whose threads have made
// no call since, at its second look.
void ReportEndedGroups(ThreadState& thread) noexcept;

// Of a torn group that NCCL tells nothing about: kernels beyond one for each operation and communicator that
// was seen carry calls that were not; those came first. They are left to their names.
void LeaveUnseenKernels(CallBatch& batch) noexcept;

// The process ends: what is held on any thread is reported by this one.
void FlushHeld(ThreadState& thread) noexcept;

}  // namespace gpuprobe::injector::nccl
