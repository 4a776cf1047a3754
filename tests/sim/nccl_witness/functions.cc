// The public functions on their way into a real NCCL.
#include <dlfcn.h>

#include <utility>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/nccl_witness/real.h"
#include "tests/sim/nccl_witness/witness.h"

#define WATCHED(name, ...) extern "C" __attribute__((visibility("default"))) ncclResult_t name(__VA_ARGS__)

namespace gpusim::nccl {

void* RealFunction(const char* name) {
  using Dlsym = void*(void*, const char*);
  static auto* const kPlain = reinterpret_cast<Dlsym*>(dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34"));
  static void* const kLibrary = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  return kPlain != nullptr && kLibrary != nullptr ? kPlain(kLibrary, name) : nullptr;
}

namespace {

struct Creation {
  // Written as late as at the group's end; of one that does not block, when its making is done.
  const ncclComm_t* comm = nullptr;
  ncclComm_t parent = nullptr;
  uint64_t hash = 0;
  Joins joins;
};

struct Group {
  int depth = 0;
  std::vector<Call> calls;
  std::vector<Creation> creations;
  ncclUniqueId last_id = {};  // that the library gave to this thread
};

Group& MyGroup() { return PerThread<Group>(); }

// Calls the library, and has the kernel that it launches carry `calls`.
template <typename Forward>
ncclResult_t Launching(const std::vector<Call>& calls, Forward forward) {
  Witness::Get().Open(calls);
  const ncclResult_t result = forward();
  Witness::Get().Close(calls, result);
  return result;
}

// No group is open: handles are written, but of what is still in progress.
void FinishCreations() {
  for (Creation& creation : std::exchange(MyGroup().creations, {})) {
    if (*creation.comm == nullptr) {
      MyGroup().creations.push_back(std::move(creation));
    } else {
      Witness::Get().Made(*creation.comm, creation.parent, creation.hash, std::move(creation.joins));
    }
  }
  Witness::Get().FinishMaking();
}

template <typename Forward>
ncclResult_t Watch(ncclComm_t comm, Call call, Forward forward) {
  if (MyGroup().depth == 0) FinishCreations();
  call.communicator = Witness::Get().Find(comm);
  if (call.communicator == nullptr) return forward();
  Accept(call);
  if (call.hangs) {
    call.communicator->NextMeeting();
    return ncclSuccess;
  }
  if (MyGroup().depth == 0) return Launching({call}, forward);
  const ncclResult_t result = forward();
  if (result == ncclSuccess || result == ncclInProgress) {
    MyGroup().calls.push_back(std::move(call));
  } else {
    TakeBack(call);
  }
  return result;
}

Call Moves(Operation operation, size_t count, ncclDataType_t type, cudaStream_t stream) {
  Call call;
  call.stream = stream;
  call.operation = operation;
  call.count = count;
  call.type = type;
  return call;
}

Call Reducing(Call call, ncclRedOp_t reduction) {
  call.reduction = reduction;
  return call;
}

Call Rooted(Call call, int root) {
  call.root = root;
  return call;
}

Call WithPeer(Call call, int peer) {
  call.peer = peer;
  return call;
}

// After the library has made one, or has begun to.
ncclResult_t Made(ncclResult_t result, const ncclComm_t* comm, ncclComm_t parent, uint64_t hash,
                  Joins joins) {
  if (result != ncclSuccess && result != ncclInProgress) return result;
  MyGroup().creations.push_back({comm, parent, hash, std::move(joins)});
  if (MyGroup().depth == 0) FinishCreations();
  return result;
}

ncclResult_t MadeById(ncclResult_t result, const ncclComm_t* comm, const ncclUniqueId& id,
                      const ncclConfig_t* config) {
  return Made(result, comm, nullptr, HashUniqueId(id),
              [id, name = NameOf(config)](Communicator& communicator) {
                communicator.SetName(name);
                return JoinById(communicator, id);
              });
}

// `number`: which child of its parent; taken before the library is called, and by ranks that get none, too.
ncclResult_t MadeFrom(ncclResult_t result, const ncclComm_t* comm, ncclComm_t parent, uint32_t number,
                      int color, const ncclConfig_t* config) {
  const CommunicatorPtr from = Witness::Get().Find(parent);
  if (from == nullptr || color == NCCL_SPLIT_NOCOLOR) return result;
  const bool shrunk = color == kShrinkColor;
  return Made(result, comm, parent,
              shrunk ? HashShrunk(from->Hash()) : HashChild(from->Hash(), number, color),
              [from, number, color, name = NameOf(config)](Communicator& child) {
                child.SetName(name);
                return JoinChild(child, *from, number, color);
              });
}

uint32_t NextChildOf(ncclComm_t parent) {
  Witness::Get().FinishMaking();
  const CommunicatorPtr from = Witness::Get().Find(parent);
  return from == nullptr ? 0 : from->NextChild();
}

}  // namespace
}  // namespace gpusim::nccl

using gpusim::nccl::Call;
using gpusim::nccl::Launching;
using gpusim::nccl::MadeById;
using gpusim::nccl::MadeFrom;
using gpusim::nccl::Moves;
using gpusim::nccl::MyGroup;
using gpusim::nccl::NextChildOf;
using gpusim::nccl::Operation;
using gpusim::nccl::Reducing;
using gpusim::nccl::Rooted;
using gpusim::nccl::Watch;
using gpusim::nccl::WithPeer;
using gpusim::nccl::Witness;

WATCHED(ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return MadeById(REAL_CALL(ncclCommInitRank, comm, nranks, commId, rank), comm, commId, nullptr);
}

WATCHED(ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
        ncclConfig_t* config) {
  return MadeById(REAL_CALL(ncclCommInitRankConfig, comm, nranks, commId, rank, config), comm, commId,
                  config);
}

WATCHED(ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
        ncclConfig_t* config) {
  return MadeById(REAL_CALL(ncclCommInitRankScalable, newcomm, nranks, myrank, nId, commIds, config), newcomm,
                  commIds[0], config);
}

// The library asks for one by its public name, too.
WATCHED(ncclGetUniqueId, ncclUniqueId* uniqueId) {
  const ncclResult_t result = REAL_CALL(ncclGetUniqueId, uniqueId);
  if (result == ncclSuccess) MyGroup().last_id = *uniqueId;
  return result;
}

WATCHED(ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist) {
  const ncclResult_t result = REAL_CALL(ncclCommInitAll, comm, ndev, devlist);
  if (result != ncclSuccess) return result;
  const ncclUniqueId id = MyGroup().last_id;
  const uint64_t hash = gpusim::nccl::HashUniqueId(id);
  for (int rank = 0; rank < ndev; ++rank) {
    Witness::Get().Made(comm[rank], nullptr, hash, [id](gpusim::nccl::Communicator& communicator) {
      return gpusim::nccl::JoinById(communicator, id);
    });
  }
  Witness::Get().FinishMaking();
  return result;
}

WATCHED(ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  const uint32_t number = NextChildOf(comm);
  return MadeFrom(REAL_CALL(ncclCommSplit, comm, color, key, newcomm, config), newcomm, comm, number, color,
                  config);
}

WATCHED(ncclCommShrink, ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
        ncclConfig_t* config, int shrinkFlags) {
  Witness::Get().FinishMaking();
  const auto from = Witness::Get().Find(comm);
  const uint32_t number = from == nullptr ? 0 : from->NextShrunk();
  if ((shrinkFlags & NCCL_SHRINK_ABORT) != 0) Witness::Get().Abort(comm);
  return MadeFrom(
      REAL_CALL(ncclCommShrink, comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags),
      newcomm, comm, number, gpusim::nccl::kShrinkColor, config);
}

WATCHED(ncclCommDestroy, ncclComm_t comm) {
  Witness::Get().FinishMaking();
  Witness::Settle();
  const ncclResult_t result = REAL_CALL(ncclCommDestroy, comm);
  if (result == ncclSuccess || result == ncclInProgress) Witness::Get().Forget(comm, "destroyed");
  return result;
}

WATCHED(ncclCommAbort, ncclComm_t comm) {
  Witness::Get().FinishMaking();
  Witness::Get().Abort(comm);
  const ncclResult_t result = REAL_CALL(ncclCommAbort, comm);
  Witness::Get().Forget(comm, "aborted");
  return result;
}

WATCHED(ncclGroupStart) {
  const ncclResult_t result = REAL_CALL(ncclGroupStart);
  if (result == ncclSuccess) ++MyGroup().depth;
  return result;
}

WATCHED(ncclGroupEnd) {
  const auto forward = [] { return REAL_CALL(ncclGroupEnd); };
  if (MyGroup().depth == 0 || --MyGroup().depth > 0) return forward();
  const std::vector<Call> calls = std::exchange(MyGroup().calls, {});
  const ncclResult_t result = Launching(calls, forward);
  gpusim::nccl::FinishCreations();
  return result;
}

WATCHED(ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  if (MyGroup().depth > 0 && --MyGroup().depth == 0) {
    for (const Call& call : std::exchange(MyGroup().calls, {})) gpusim::nccl::TakeBack(call);
  }
  return REAL_CALL(ncclGroupSimulateEnd, simInfo);
}

WATCHED(ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Reducing(Moves(Operation::kAllReduce, count, datatype, stream), op), [&] {
    return REAL_CALL(ncclAllReduce, sendbuff, recvbuff, count, datatype, op, comm, stream);
  });
}

WATCHED(ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Moves(Operation::kAllGather, sendcount, datatype, stream), [&] {
    return REAL_CALL(ncclAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream);
  });
}

WATCHED(ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Reducing(Moves(Operation::kReduceScatter, recvcount, datatype, stream), op), [&] {
    return REAL_CALL(ncclReduceScatter, sendbuff, recvbuff, recvcount, datatype, op, comm, stream);
  });
}

// ncclBcast comes by here: the library calls this one through its PLT.
WATCHED(ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Rooted(Moves(Operation::kBroadcast, count, datatype, stream), root), [&] {
    return REAL_CALL(ncclBroadcast, sendbuff, recvbuff, count, datatype, root, comm, stream);
  });
}

WATCHED(ncclReduce, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Rooted(Reducing(Moves(Operation::kReduce, count, datatype, stream), op), root), [&] {
    return REAL_CALL(ncclReduce, sendbuff, recvbuff, count, datatype, op, root, comm, stream);
  });
}

WATCHED(ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
        ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Moves(Operation::kAlltoAll, count, datatype, stream),
               [&] { return REAL_CALL(ncclAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream); });
}

WATCHED(ncclGather, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Rooted(Moves(Operation::kGather, count, datatype, stream), root), [&] {
    return REAL_CALL(ncclGather, sendbuff, recvbuff, count, datatype, root, comm, stream);
  });
}

WATCHED(ncclScatter, const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
        ncclComm_t comm, cudaStream_t stream) {
  return Watch(comm, Rooted(Moves(Operation::kScatter, count, datatype, stream), root), [&] {
    return REAL_CALL(ncclScatter, sendbuff, recvbuff, count, datatype, root, comm, stream);
  });
}

WATCHED(ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream) {
  return Watch(comm, WithPeer(Moves(Operation::kSend, count, datatype, stream), peer),
               [&] { return REAL_CALL(ncclSend, sendbuff, count, datatype, peer, comm, stream); });
}

WATCHED(ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
        cudaStream_t stream) {
  return Watch(comm, WithPeer(Moves(Operation::kRecv, count, datatype, stream), peer),
               [&] { return REAL_CALL(ncclRecv, recvbuff, count, datatype, peer, comm, stream); });
}

// What a tool asks the library that it found the others in.
WATCHED(ncclCommUserRank, const ncclComm_t comm, int* rank) {
  return REAL_CALL(ncclCommUserRank, comm, rank);
}
WATCHED(ncclCommCount, const ncclComm_t comm, int* count) { return REAL_CALL(ncclCommCount, comm, count); }
WATCHED(ncclCommCuDevice, const ncclComm_t comm, int* device) {
  return REAL_CALL(ncclCommCuDevice, comm, device);
}
WATCHED(ncclGetVersion, int* version) { return REAL_CALL(ncclGetVersion, version); }
WATCHED(ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  const ncclResult_t result = REAL_CALL(ncclCommGetAsyncError, comm, asyncError);
  if (result == ncclSuccess && *asyncError == ncclSuccess && MyGroup().depth == 0)
    gpusim::nccl::FinishCreations();
  return result;
}
