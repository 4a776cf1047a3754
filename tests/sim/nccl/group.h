// Group semantics: calls are collected per thread and launched, fused, when the outermost group ends.
//
// The exported functions make a Call and hand it over; a call outside of any group is a group of one.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/sim/nccl/communicator.h"
#include "tests/sim/nccl/operations.h"

namespace gpusim::nccl {

struct Call {
  Operation operation = Operation::kAllReduce;
  const void* send = nullptr;
  void* receive = nullptr;
  uint64_t count = 0;
  ncclDataType_t type = ncclInt8;
  int reduction = 0;  // ncclRedOp_t, 0 for operations without
  double scale = 1;   // of a custom reduction
  int root = -1;
  int peer = -1;
  CUstream stream = nullptr;
  CommunicatorPtr communicator;
  // Set when the call is accepted.
  uint64_t sequence = 0;
  uint64_t issue_ns = 0;
  bool hangs = false;  // GPUSIM_HANG: accepted, never issued
  bool stuck = false;  // GPUSIM_HANG without a rank: issued, and never ends
  // What a profiler plugin knows the call by, and the group that it was made in.
  std::vector<void*> api_events;
  void* group_api_event = nullptr;
};

// It has its number and its time.
void Accept(Call& call);
// It was never made: the next one has its number.
void TakeBack(const Call& call);

// A communicator in the making, with the place where its handle was put.
struct PendingCreation {
  std::unique_ptr<Creation> creation;
  ncclComm_t handle = nullptr;
};

// What a one-sided call moves.
struct Copy {
  const void* source = nullptr;
  size_t bytes = 0;
  CUstream stream = nullptr;
};

void GroupStart();
// ncclInvalidUsage without a start; else the first error of the group's calls or of their launch.
ncclResult_t GroupEnd();
// As GroupEnd, but launches nothing: the time that the group would take, in microseconds.
ncclResult_t GroupSimulateEnd(float* estimated_us);

// Checks the call's arguments and takes it into the group, or launches it.
ncclResult_t Submit(Call call);
// Makes the communicator at the end of the group, or at once; in the background unless it is blocking.
ncclResult_t Submit(PendingCreation pending);

// At the end of the group, or at once.
ncclResult_t Submit(const Copy& copy);

// The thread's context while it works for a communicator.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_;
};

}  // namespace gpusim::nccl
