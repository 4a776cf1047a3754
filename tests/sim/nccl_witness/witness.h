// The node's knowledge of a real NCCL's communicators and of the calls that its next kernel carries.
//
// A real NCCL launches kernels like any program: the node sees a name and a buffer of arguments, and must not
// depend on what a version keeps in it. So the public calls are watched on their way into the library: they
// show who takes part, what is moved, and in which group. The kernel that the library launches for a group
// gets the meeting and the truth that the node's own NCCL would have given it.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/nccl/communicator.h"
#include "tests/sim/nccl/group.h"

namespace gpusim::nccl {

// How a communicator came to be, as far as that has to wait until the library has made it: takes part under a
// name that the other ranks take, too; false if it could not.
using Joins = std::function<bool(Communicator&)>;

class Witness {
 public:
  static Witness& Get();

  // A new handle. Looked at when the library has finished it: what it is of (rank, ranks, device) is asked
  // then.
  void Made(ncclComm_t comm, const ncclComm_t parent, uint64_t hash_or_zero, Joins joins);
  // What the calling thread began to make may be finished now.
  void FinishMaking();
  CommunicatorPtr Find(ncclComm_t comm);
  // It is about to be destroyed: its kernels have ended, and NCCL knows it.
  static void Settle();
  // It is about to be aborted: its kernels end.
  void Abort(ncclComm_t comm);
  void Forget(ncclComm_t comm, const char* state);

  // The calls that the library is about to launch; what became of them once it has returned.
  void Open(const std::vector<Call>& calls);
  void Close(const std::vector<Call>& calls, ncclResult_t result);

 private:
  static void FinishMakingNow();
};

}  // namespace gpusim::nccl
