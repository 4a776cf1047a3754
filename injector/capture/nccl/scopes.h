// Our work around a call into NCCL: one scope for each kind of entry point, opened before the real function
// runs and closed with its result.
//
// The wrappers (wrappers.h) are generated and only forward. Scopes have no destructors: we leave nothing on
// the stack that an unwinder would have to run, and hold nothing while NCCL runs; the guard is entered and
// left on both sides. Thread: the application's. Allocation: none. Failure: a scope that could not note its
// call does nothing at its end; the wrapper never looks at NCCL's result.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include "injector/capture/nccl/calls.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// ncclWaitSignalDesc_t of NCCL 2.29.
struct WaitSignalDesc {
  int operations;
  int peer;
  int signal;
  int context;
};
// -1: it waits for several.
inline int PeerOf(int count, const WaitSignalDesc* signals) noexcept {
  if (count <= 0 || signals == nullptr) return -1;
  for (int i = 1; i < count; ++i) {
    if (signals[i].peer != signals[0].peer) return -1;
  }
  return signals[0].peer;
}

struct Awaited;

// How a call reached us.
struct Origin {
  int way;
  EntryPoint entry_point;
};

// Counts the nesting, so that a call that NCCL or a wrapper of the program's makes from inside another one is
// not a second record.
class Scope {
 public:
  explicit Scope(Origin origin) noexcept : origin_(origin) {}

 protected:
  // True for the application's own call. Leave must follow in any case.
  bool Enter() noexcept;
  void Leave() noexcept;

  Origin origin_;
  ThreadState* thread_;  // null: no state for this thread
};

class PassScope {
 public:
  explicit PassScope(Origin) noexcept {}
  void Begin() noexcept {}
  void End(ncclResult_t) noexcept {}
};

class CallScope : private Scope {
 public:
  using Scope::Scope;
  // `reduction`: an ncclRedOp_t, -1 for none.
  void Begin(size_t count, ncclDataType_t datatype, int root, int peer, const void* comm, const void* stream,
             int64_t reduction = -1) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  PendingCall* call_;         // null: not recorded
  bool single_;               // outside a group
  uint32_t launches_before_;  // of the group, when the call began
  CallBatch* batch_;          // of a single call
  Awaited* awaited_;          // NCCL may launch its kernel later
  NumberedCall beyond_;       // for which the batch had no room
  SingleBatch local_;
};

class GroupStartScope : private Scope {
 public:
  using Scope::Scope;
  void Begin() noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
};

class GroupEndScope : protected Scope {
 public:
  using Scope::Scope;
  void Begin() noexcept;
  void End(ncclResult_t result) noexcept;

 protected:
  bool ours_;
  Awaited* awaited_;  // NCCL may launch its kernels later
  bool left_;         // no group that we know of is open: End does nothing
};

// Ends the group without launching anything.
class GroupSimulateEndScope : private GroupEndScope {
 public:
  using GroupEndScope::GroupEndScope;
  void Begin() noexcept { GroupEndScope::Begin(); }
  void End(ncclResult_t result) noexcept;
};

class InitRankScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(ncclComm_t* newcomm, int ranks, const ncclUniqueId* id, int rank,
             const ncclConfig_t* config) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  PendingInit init_;
};

class InitAllScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(ncclComm_t* comms, int devices, const int* device_list) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  ncclComm_t* comms_;
  int devices_;
  const int* device_list_;
  uint64_t hash_;
  uint64_t told_before_;
};

class ChildScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(ncclComm_t* newcomm, ncclComm_t parent, int color, const ncclConfig_t* config) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  const void* parent_;  // that has counted the child; null: none
  PendingInit init_;
};

// The new ranks know the new unique id, the others the parent, so no rank can compute a name that all of them
// would use: the communicator is identified by what it answers itself.
class GrowScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(ncclComm_t* newcomm, ncclComm_t parent, int ranks, int rank,
             const ncclConfig_t* config) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  PendingInit init_;
};

class RevokeScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(const void* comm) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  const void* handle_;
};

// NCCL reports the progress of a non-blocking communicator; once it is made, we may query NCCL about it.
class AsyncErrorScope : private Scope {
 public:
  using Scope::Scope;
  void Begin(const void* comm, const ncclResult_t* answer) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool ours_;
  const void* handle_;
  const ncclResult_t* answer_;
};

class EndOfCommunicatorScope : private Scope {
 public:
  EndOfCommunicatorScope(Origin origin, bool aborted) noexcept : Scope(origin), aborted_(aborted) {}
  void Begin(const void* comm) noexcept;
  void End(ncclResult_t result) noexcept;

 private:
  bool aborted_;
  bool ours_;
  const void* handle_;
  CommunicatorFacts facts_;
  CommunicatorState state_;
};

class DestroyScope : public EndOfCommunicatorScope {
 public:
  explicit DestroyScope(Origin origin) noexcept : EndOfCommunicatorScope(origin, false) {}
};

class AbortScope : public EndOfCommunicatorScope {
 public:
  explicit AbortScope(Origin origin) noexcept : EndOfCommunicatorScope(origin, true) {}
};

// A kernel launch was entered on this thread: noted if NCCL makes it for a call of the application. False if
// it is not an NCCL kernel inside an NCCL call that we see. From the driver callback, inside the guard.
bool NoteKernelLaunch(ThreadState& thread, const KernelLaunch& kernel) noexcept;

// A kernel as it was launched; ops 0 if it is not NCCL's.
SeenLaunch SeenLaunchOf(const KernelLaunch& kernel) noexcept;

// A call was issued; steps may be counted by such calls. Inside the guard.
void CountCall(const CollectiveEvent& call, int32_t ranks) noexcept;

// The batch is complete: decides its plans and reports it. Inside the guard.
void EmitBatch(ThreadState& thread, CallBatch& batch) noexcept;

// Returns the number of a call that NCCL refused, never made, or that is recorded elsewhere, so that the
// count stays equal to the other ranks'. The last call of a batch comes first.
void ReturnSequence(const PendingCall& call) noexcept;

// Kernel nodes of CUDA graphs (GraphNodeHooks of injector/capture/cupti/callbacks.h): an NCCL kernel that was
// captured instead of launched keeps its plan under its node's id, and so does every copy of the node.
bool WantsGraphNode(const ThreadState& thread, bool cloned, bool copies) noexcept;
void NoteGraphNode(ThreadState& thread, uint64_t id, uint64_t original_id, uint64_t owner,
                   bool copies) noexcept;

// This process's identity, taken from the communicator with the most ranks so far. False while there is none.
struct NcclIdentity {
  int32_t rank;
  int32_t world_size;
};
bool IdentityFromNccl(NcclIdentity* identity) noexcept;

}  // namespace gpuprobe::injector::nccl
