#include "tests/sim/nccl/group.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/nccl/plan.h"
#include "tests/sim/nccl/profiler.h"

namespace gpusim::nccl {
namespace {

// Collectives of this process so far, for GPUSIM_HANG.
std::atomic<uint64_t> collective_calls{0};

}  // namespace

void Accept(Call& call) {
  call.issue_ns = NowNs();
  if (IsPointToPoint(call.operation)) {
    call.sequence = call.communicator->NextTransfer();
    return;
  }
  call.sequence = call.communicator->NextCollective();
  const uint64_t number = collective_calls.fetch_add(1);
  call.hangs = RankHangsAt(number);
  call.stuck = IsStuckAt(number);
}

void TakeBack(const Call& call) {
  if (IsPointToPoint(call.operation)) {
    call.communicator->TakeBackTransfer();
  } else {
    call.communicator->TakeBackCollective();
  }
}

namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Call> calls;
  std::vector<std::pair<Call, ncclResult_t>> without_kernel;  // done already
  std::vector<PendingCreation> creations;
  std::vector<Copy> copies;
};

Group& MyGroup() { return PerThread<Group>(); }

ncclResult_t Check(const Call& call) {
  const Communicator& communicator = *call.communicator;
  if (communicator.State() != ncclSuccess || communicator.IsAborted()) {
    return ncclInvalidArgument;
  }
  if (TypeSize(call.type) == 0) {
    return ncclInvalidArgument;
  }
  if (HasRoot(call.operation) && (call.root < 0 || call.root >= communicator.Ranks())) {
    return ncclInvalidArgument;
  }
  if (IsPointToPoint(call.operation) && (call.peer < 0 || call.peer >= communicator.Ranks())) {
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

// It does not count among the communicator's calls: its number is that of the next one.
void LogRefused(Call& call, ncclResult_t result) {
  const Communicator& communicator = *call.communicator;
  call.issue_ns = NowNs();
  call.sequence =
      IsPointToPoint(call.operation) ? communicator.TransfersSoFar() : communicator.CollectivesSoFar();
  LogWithoutKernel(call, result);
}

// A communicator of one: a copy if the result belongs elsewhere, else nothing.
ncclResult_t RunAlone(const Call& call) {
  if (call.send == nullptr || call.receive == nullptr || call.send == call.receive || call.hangs) {
    return ncclSuccess;
  }
  const ContextScope context(call.communicator->Context());
  const CUresult result =
      cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(call.receive), reinterpret_cast<CUdeviceptr>(call.send),
                        call.count * TypeSize(call.type), call.stream);
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

// As the real one does between devices that reach each other: by a copy on the stream.
ncclResult_t Run(const Copy& copy) {
  const auto address = reinterpret_cast<CUdeviceptr>(copy.source);
  const CUresult result = cuMemcpyDtoDAsync(address, address, copy.bytes, copy.stream);
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t Make(std::vector<PendingCreation>& creations) {
  ncclResult_t first_error = ncclSuccess;
  std::vector<ncclResult_t> results(creations.size(), ncclSuccess);
  for (const PendingCreation& pending : creations) {
    pending.creation->Announce();
  }
  for (size_t i = 0; i < creations.size(); ++i) {
    results[i] = creations[i].creation->Join();
  }
  for (size_t i = 0; i < creations.size(); ++i) {
    if (results[i] == ncclSuccess) {
      results[i] = creations[i].creation->Finish();
    }
    creations[i].creation->Target()->SetState(results[i]);
    first_error = first_error == ncclSuccess ? results[i] : first_error;
  }
  return first_error;
}

ncclResult_t Run(std::vector<PendingCreation> creations) {
  if (creations.empty()) {
    return ncclSuccess;
  }
  const bool blocking = std::all_of(creations.begin(), creations.end(), [](const PendingCreation& pending) {
    return pending.creation->Target()->IsBlocking();
  });
  if (blocking) {
    return Make(creations);
  }
  std::thread([background = std::move(creations)]() mutable { Make(background); }).detach();
  return ncclInProgress;
}

ncclResult_t LaunchAll(const std::vector<Call>& calls) {
  for (const Plan& plan : MakePlans(calls, FusesAll())) {
    const ncclResult_t launched = Launch(plan);
    if (launched != ncclSuccess) {
      return launched;
    }
  }
  return ncclSuccess;
}

// As the real library: a group of communicators that do not block is launched by a thread of its own.
bool RunsInBackground(const std::vector<Call>& calls) {
  return !calls.empty() && std::none_of(calls.begin(), calls.end(), [](const Call& call) {
    return call.communicator->IsBlocking() || IsCaptured(call.stream);
  });
}

void LaunchInBackground(std::vector<Call> calls) {
  for (const Call& call : calls) {
    call.communicator->SetState(ncclInProgress);
  }
  std::thread([background = std::move(calls)]() {
    const ncclResult_t launched = LaunchAll(background);
    for (const Call& call : background) {
      call.communicator->SetState(launched);
    }
  }).detach();
}

// Nothing is launched: each of the calls ends in the group's error.
ncclResult_t Refuse(const Group& refused) {
  for (const Call& call : refused.calls) {
    LogWithoutKernel(call, refused.error);
  }
  for (const auto& [call, result] : refused.without_kernel) {
    LogWithoutKernel(call, refused.error);
  }
  return refused.error;
}

ncclResult_t Finish(Group finished) {
  if (finished.error != ncclSuccess) {
    return Refuse(finished);
  }
  for (const auto& [call, result] : finished.without_kernel) {
    LogWithoutKernel(call, result);
  }
  const ncclResult_t made = Run(std::move(finished.creations));
  if (made != ncclSuccess && made != ncclInProgress) {
    return made;
  }
  if (RunsInBackground(finished.calls)) {
    LaunchInBackground(std::move(finished.calls));
    return ncclInProgress;
  }
  ncclResult_t launched = LaunchAll(finished.calls);
  for (const Copy& copy : finished.copies) {
    launched = launched == ncclSuccess ? Run(copy) : launched;
  }
  return launched != ncclSuccess ? launched : made;
}

}  // namespace

ContextScope::ContextScope(CUcontext context) : pushed_(cuCtxPushCurrent(context) == CUDA_SUCCESS) {}

ContextScope::~ContextScope() {
  if (pushed_) {
    CUcontext popped = nullptr;
    cuCtxPopCurrent(&popped);
  }
}

void GroupStart() { ++MyGroup().depth; }

ncclResult_t GroupEnd() {
  if (MyGroup().depth == 0) {
    return ncclInvalidUsage;
  }
  if (--MyGroup().depth > 0) {
    return ncclSuccess;
  }
  const ncclResult_t result = Finish(std::exchange(MyGroup(), Group{}));
  ProfileGroupEnd();
  return result;
}

ncclResult_t GroupSimulateEnd(float* estimated_us) {
  if (MyGroup().depth == 0) {
    return ncclInvalidUsage;
  }
  if (--MyGroup().depth > 0) {
    return ncclSuccess;
  }
  const Group finished = std::exchange(MyGroup(), Group{});
  uint64_t longest_ns = 0;
  for (const Plan& plan : MakePlans(finished.calls, FusesAll())) {
    longest_ns = std::max(longest_ns, plan.duration_ns);
  }
  for (const Call& call : finished.calls) {
    TakeBack(call);
  }
  for (const auto& [call, result] : finished.without_kernel) {
    TakeBack(call);
  }
  ProfileGroupEnd();
  *estimated_us = static_cast<float>(longest_ns) / 1000.0F;
  return finished.error;
}

ncclResult_t Submit(Call call) {
  const ncclResult_t checked = Check(call);
  if (checked != ncclSuccess) {
    MyGroup().error = MyGroup().depth > 0 && MyGroup().error == ncclSuccess ? checked : MyGroup().error;
    LogRefused(call, checked);
    return checked;
  }
  Accept(call);
  const bool alone = call.communicator->Ranks() == 1 && !IsPointToPoint(call.operation);
  if (call.count == 0 || alone) {
    const ncclResult_t result = call.count == 0 ? ncclSuccess : RunAlone(call);
    if (!call.hangs && MyGroup().depth > 0) {
      MyGroup().without_kernel.emplace_back(std::move(call), result);
    } else if (!call.hangs) {
      LogWithoutKernel(call, result);
    }
    return result;
  }
  GroupStart();
  ProfileApiCall(call, IsCaptured(call.stream));
  call.group_api_event = GroupApiEvent();
  MyGroup().calls.push_back(std::move(call));
  return GroupEnd();
}

ncclResult_t Submit(PendingCreation pending) {
  GroupStart();
  MyGroup().creations.push_back(std::move(pending));
  return GroupEnd();
}

ncclResult_t Submit(const Copy& copy) {
  GroupStart();
  MyGroup().copies.push_back(copy);
  return GroupEnd();
}

}  // namespace gpusim::nccl
