#include "tests/injector/capture/nccl/fake_nccl.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

// What a communicator's handle points to.
struct ncclComm {
  int rank;
  int ranks;
  int device;
};

namespace {

struct Launch {
  std::string kernel;
  cudaStream_t stream;
  const void* comm;
};

struct State {
  std::map<ncclComm_t, std::unique_ptr<ncclComm>> communicators;
  std::map<std::string, int> calls;
  std::map<std::string, ncclResult_t> failures;
  int group_depth = 0;
  std::vector<Launch> pending;
  std::vector<std::pair<ncclComm_t*, ncclComm_t>> pending_inits;
  void (*hook)(const char*, cudaStream_t, const void*) = nullptr;
  void (*query_hook)() = nullptr;
};

State& TheState() {
  static State state;
  return state;
}

// Counts the call; the failure that was asked for, else success.
ncclResult_t Count(const char* name) {
  ++TheState().calls[name];
  const auto failure = TheState().failures.find(name);
  if (failure == TheState().failures.end()) return ncclSuccess;
  const ncclResult_t result = failure->second;
  TheState().failures.erase(failure);
  return result;
}

ncclResult_t LaunchAll() {
  std::vector<Launch> launches;
  launches.swap(TheState().pending);
  // One kernel for each communicator and name.
  std::vector<Launch> fused;
  for (const Launch& launch : launches) {
    bool known = false;
    for (const Launch& other : fused) known |= other.kernel == launch.kernel && other.comm == launch.comm;
    if (!known) fused.push_back(launch);
  }
  for (const Launch& launch : fused) {
    if (TheState().hook != nullptr) TheState().hook(launch.kernel.c_str(), launch.stream, launch.comm);
  }
  for (auto& [where, comm] : TheState().pending_inits) *where = comm;
  TheState().pending_inits.clear();
  return ncclSuccess;
}

ncclResult_t Issue(const char* name, const char* kernel, size_t count, ncclComm_t comm, cudaStream_t stream) {
  const ncclResult_t result = Count(name);
  if (result != ncclSuccess) return result;
  if (count > 0 && comm != nullptr && comm->ranks > 1) TheState().pending.push_back({kernel, stream, comm});
  return TheState().group_depth > 0 ? ncclSuccess : LaunchAll();
}

ncclComm_t NewComm(int rank, int ranks, int device) {
  auto comm = std::make_unique<ncclComm>(ncclComm{rank, ranks, device});
  const ncclComm_t handle = comm.get();
  TheState().communicators[handle] = std::move(comm);
  return handle;
}

ncclResult_t Make(const char* name, ncclComm_t* where, int rank, int ranks, int device) {
  const ncclResult_t result = Count(name);
  if (result != ncclSuccess) return result;
  const ncclComm_t comm = NewComm(rank, ranks, device);
  if (TheState().group_depth > 0) {
    TheState().pending_inits.emplace_back(where, comm);
  } else {
    *where = comm;
  }
  return ncclSuccess;
}

ncclResult_t Unmake(const char* name, ncclComm_t comm) {
  const ncclResult_t result = Count(name);
  if (result == ncclSuccess) TheState().communicators.erase(comm);
  return result;
}

const FakeNccl kTable = {
    [](const char* name) { return TheState().calls[name]; },
    [] { TheState() = State{}; },
    [](void (*hook)(const char*, cudaStream_t, const void*)) { TheState().hook = hook; },
    [](const char* name, ncclResult_t result) { TheState().failures[name] = result; },
    [](void (*hook)()) { TheState().query_hook = hook; },
};

}  // namespace

extern "C" {

const FakeNccl* fake_nccl() { return &kTable; }

#define ALIAS(name) __attribute__((alias("nccl" #name)))

ncclResult_t ncclAllReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Issue("AllReduce", "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
               count, comm, stream);
}
ncclResult_t pncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t)
    ALIAS(AllReduce);
ncclResult_t ncclAllGather(const void*, void*, size_t count, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  return Issue("AllGather", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", count, comm,
               stream);
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                               cudaStream_t stream) {
  return Issue("ReduceScatter", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", count, comm, stream);
}
// What a later version may bring.
ncclResult_t ncclConjure(ncclComm_t) { return ncclSuccess; }
extern __attribute__((visibility("default"))) int ncclConjured;
int ncclConjured = 1;
// Interposable, as NCCL's own is: ncclBcast below calls it through the library's jump slot.
ncclResult_t ncclBroadcast(const void*, void*, size_t count, ncclDataType_t, int, ncclComm_t comm,
                           cudaStream_t stream) {
  return Issue("Broadcast", "ncclDevKernel_Broadcast_RING_LL", count, comm, stream);
}
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  ++TheState().calls["Bcast"];
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, int, ncclComm_t comm,
                        cudaStream_t stream) {
  return Issue("Reduce", "ncclDevKernel_Reduce_Sum_f32_RING_LL", count, comm, stream);
}
ncclResult_t ncclAlltoAll(const void*, void*, size_t count, ncclDataType_t, ncclComm_t comm,
                          cudaStream_t stream) {
  return Issue("AlltoAll", "ncclDevKernel_SendRecv", count, comm, stream);
}
ncclResult_t ncclGather(const void*, void*, size_t count, ncclDataType_t, int, ncclComm_t comm,
                        cudaStream_t stream) {
  return Issue("Gather", "ncclDevKernel_SendRecv", count, comm, stream);
}
ncclResult_t ncclScatter(const void*, void*, size_t count, ncclDataType_t, int, ncclComm_t comm,
                         cudaStream_t stream) {
  return Issue("Scatter", "ncclDevKernel_SendRecv", count, comm, stream);
}
ncclResult_t ncclSend(const void*, size_t count, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return Issue("Send", "ncclDevKernel_SendRecv", count, comm, stream);
}
ncclResult_t ncclRecv(void*, size_t count, ncclDataType_t, int, ncclComm_t comm, cudaStream_t stream) {
  return Issue("Recv", "ncclDevKernel_SendRecv", count, comm, stream);
}
ncclResult_t ncclGroupStart() {
  const ncclResult_t result = Count("GroupStart");
  if (result == ncclSuccess) ++TheState().group_depth;
  return result;
}
ncclResult_t ncclGroupEnd() {
  const ncclResult_t result = Count("GroupEnd");
  if (TheState().group_depth == 0) return ncclInvalidUsage;
  if (--TheState().group_depth > 0) return result;
  if (result == ncclSuccess) return LaunchAll();
  TheState().pending.clear();
  return result;
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  TheState().pending.clear();
  --TheState().group_depth;
  return Count("GroupSimulateEnd");
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId, int rank) {
  return Make("CommInitRank", comm, rank, ranks, 0);
}
// Does not block, as far as anybody sees.
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank, ncclConfig_t*) {
  const ncclResult_t result = Make("CommInitRankConfig", comm, rank, ranks, 0);
  return result == ncclSuccess ? ncclInProgress : result;
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int, ncclUniqueId*,
                                      ncclConfig_t*) {
  return Make("CommInitRankScalable", comm, rank, ranks, 0);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* list) {
  const ncclResult_t result = Count("CommInitAll");
  for (int i = 0; i < devices; ++i) comms[i] = NewComm(i, devices, list != nullptr ? list[i] : i);
  return result;
}
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* comm, ncclConfig_t*) {
  if (color == NCCL_SPLIT_NOCOLOR) {
    *comm = nullptr;
    return Count("CommSplit");
  }
  return Make("CommSplit", comm, key, parent->ranks / 2, parent->device);
}
ncclResult_t ncclCommShrink(ncclComm_t parent, int*, int excluded, ncclComm_t* comm, ncclConfig_t*, int) {
  return Make("CommShrink", comm, parent->rank, parent->ranks - excluded, parent->device);
}
ncclResult_t ncclCommGrow(ncclComm_t parent, int ranks, const ncclUniqueId*, int rank, ncclComm_t* comm,
                          ncclConfig_t*) {
  return Make("CommGrow", comm, parent == nullptr ? rank : parent->rank, ranks,
              parent == nullptr ? 0 : parent->device);
}
// Functions new in NCCL 2.29.
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                           unsigned int, ncclComm_t, cudaStream_t) {
  return Count("PutSignal");
}
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) { return Count("Signal"); }
ncclResult_t ncclWaitSignal(int, void*, ncclComm_t, cudaStream_t) { return Count("WaitSignal"); }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return Unmake("CommDestroy", comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return Unmake("CommAbort", comm); }
ncclResult_t ncclCommFinalize(ncclComm_t) { return Count("CommFinalize"); }
ncclResult_t ncclCommRevoke(ncclComm_t, int) { return Count("CommRevoke"); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* answer) {
  const ncclResult_t result = Count("CommGetAsyncError");
  *answer = result;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  id->internal[0] = 7;
  return Count("GetUniqueId");
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return Count("GetVersion");
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->ranks;
  if (TheState().query_hook != nullptr) TheState().query_hook();
  return Count("CommCount");
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return Count("CommUserRank");
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return Count("CommCuDevice");
}
ncclResult_t ncclMemAlloc(void**, size_t) { return Count("MemAlloc"); }
ncclResult_t ncclMemFree(void*) { return Count("MemFree"); }
ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void**) { return Count("CommRegister"); }
ncclResult_t ncclCommDeregister(const ncclComm_t, void*) { return Count("CommDeregister"); }
ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int) {
  return Count("CommWindowRegister");
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return Count("CommWindowDeregister"); }
}
