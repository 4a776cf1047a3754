// What a thread is doing in NCCL: the group that it is in, and the batch in which its calls and their kernels
// are noted.
//
//   +-------+          GroupStart           +-------+
//   |       | ----------------------------> |       |
//   |       |                               | kOpen | ----+
//   |       | <---- outermost GroupEnd ---- |       |     | an NCCL kernel outside of all calls,
//   |       |                               +-------+     | or NCCL reports the group's end
//   |       |                                   ^         v
//   |       |                        GroupEnd   |   +--------------+   next call, or one kernel more
//   | kNone |                                   |   | kEndedPastUs | ---- than the group has ----> kNone
//   |       |                                   |   +--------------+
//   |       |   call without its kernel (1) +-------+     ^
//   |       | ----------------------------> |       |     |
//   |       |                               | kTorn | ----+
//   |       | <---- between groups (2) ---- |       |
//   |       |                               +-------+
//   |       |  NCCL reports the first call  +-----------+
//   |       | ----------------------------> | kReported |
//   |       | <- NCCL reports group's end - |           |
//   +-------+                               +-----------+
//
//   (1) on a thread that may have been inside a group when the program was patched (torn_groups.h), or whose
//       group goes on according to NCCL
//   (2) a call has its own kernel, or NCCL reports the first call of the next group
//
// A call outside of all groups has no state of its own: its batch is there from its begin to its end, in
// kNone or kTorn. In kTorn `depth` counts the starts seen inside the torn group. When a call or group ends,
// its batch is reported at once, or, if an NCCL thread launches its kernels later, goes to awaited.h.
//
// Thread: only the thread itself reads and writes its state, apart from `held` and `ended`. Any thread may
// take those, by an exchange: the probe's reports a group that ended past us if its thread makes no call, and
// everything when the process ends. So either may be null in kTorn or kEndedPastUs. When the thread ends,
// what it holds goes to `ended`. Signal handler: as in all of ThreadState, the guard keeps ours out.
// Allocation: none; the state lies in its slot of ThreadState. Failure: without a free batch `batch` is null,
// and the calls are counted, not kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

struct Awaited;

enum class GroupState : uint8_t {
  kNone,         // between groups, as far as we know
  kOpen,         // the wrappers saw its start
  kTorn,         // the wrappers missed its start: the calls seen are held
  kReported,     // the wrappers missed its start: NCCL reports its calls to the plugin
  kEndedPastUs,  // the wrappers missed its end: NCCL may still report its calls, until the next call
};

// The last NCCL kernel launched outside of all calls that we see; the plugin's reports refer to it.
struct BypassingLaunch {
  uint32_t correlation = 0;  // 0: none, or all its calls have been reported
  bool reported = false;     // some call of it was
  uint64_t plan = 0;         // 0: no call was reported yet
  uint64_t launch_ns = 0;
};

inline constexpr uint32_t kCallCopies = 16;

// Copies launched inside an NCCL call (copies.h).
struct Copies {
  uint64_t plan = 0;         // of the one-sided calls that are copying now; 0: none
  uint32_t launched = 0;     // for that plan, captured ones included
  uint32_t last = 0;         // correlation id, until it is certain that it is not captured
  bool captured = false;     // for that plan
  uint32_t other_count = 0;  // of the next
  // Correlation ids of the current call's or group's copies without such a plan: the first ones and the last.
  uint32_t others[kCallCopies] = {};
};

struct ThreadCalls {
  GroupState state = GroupState::kNone;
  bool end_due = false;        // NCCL has reported a call, and not yet the end of its group
  int depth = 0;               // GroupStart minus GroupEnd, as the wrappers saw them
  uint32_t patches_seen = 0;   // LatePatches() when the thread was last seen between two groups
  uint32_t ended_looks = 0;    // of the probe's thread, at `ended`
  CallBatch* batch = nullptr;  // of the call or group; null: no call yet, or no room
  Awaited* awaited = nullptr;  // place of `batch` in kReported; null: no room
  std::atomic<CallBatch*> held{nullptr};
  std::atomic<CallBatch*> ended{nullptr};

  BypassingLaunch bypassing;
  Copies copies;

  // On an NCCL thread: the place that its last launch was added to, and the number of the call there.
  Awaited* served = nullptr;
  uint64_t served_number = 0;
};
static_assert(sizeof(ThreadCalls) <= sizeof(NcclSlot) && alignof(ThreadCalls) <= alignof(NcclSlot));

inline ThreadCalls& CallsOf(ThreadState& thread) noexcept {
  return *std::launder(reinterpret_cast<ThreadCalls*>(thread.nccl.bytes));
}
inline const ThreadCalls& CallsOf(const ThreadState& thread) noexcept {
  return *std::launder(reinterpret_cast<const ThreadCalls*>(thread.nccl.bytes));
}

inline bool InGroup(const ThreadCalls& calls) noexcept { return calls.depth != 0; }
inline bool EndedPastUs(const ThreadCalls& calls) noexcept { return calls.state == GroupState::kEndedPastUs; }
inline bool HoldsCalls(const ThreadCalls& calls) noexcept { return calls.state == GroupState::kTorn; }
inline bool IsReported(const ThreadCalls& calls) noexcept { return calls.state == GroupState::kReported; }

// The batch of the open or reported group, claimed at its first call. Null: no room.
CallBatch* BatchOfGroup(ThreadCalls& calls) noexcept;

// The call or group is over, or carries on elsewhere: the caller has its batch now.
CallBatch* TakeBatch(ThreadCalls& calls) noexcept;

// GroupStart has returned.
void StartLevel(ThreadCalls& calls) noexcept;

// GroupEnd has returned. True for the outermost level.
bool EndLevel(ThreadCalls& calls) noexcept;

// The counted starts are those of a group that has ended.
CallBatch* LeaveGroup(ThreadCalls& calls) noexcept;

// kNone or kTorn -> kTorn: these calls are held; null: there are none after all.
void HoldCalls(ThreadCalls& calls, CallBatch* held) noexcept;

// kTorn -> kOpen or kNone: the caller has the held calls now. Null: none.
CallBatch* TakeHeld(ThreadCalls& calls) noexcept;

// GroupEnd of a torn group: kTorn -> kOpen, with the held calls as its batch. False: none were held.
bool OpenTornGroup(ThreadCalls& calls) noexcept;

void BeginReported(ThreadCalls& calls) noexcept;
CallBatch* EndReported(ThreadCalls& calls, Awaited** awaited) noexcept;

// -> kEndedPastUs, with the batch of the group that has ended.
void EndPastUs(ThreadCalls& calls, CallBatch* batch) noexcept;

// kEndedPastUs -> kNone.
void ForgetEnded(ThreadCalls& calls) noexcept;

// Takes `held` or `ended`, from any thread.
CallBatch* Take(std::atomic<CallBatch*>& place) noexcept;

// The thread has ended (thread_end_hook): the probe's thread reports what is left.
void EndThread(ThreadState& thread) noexcept;

}  // namespace gpuprobe::injector::nccl
