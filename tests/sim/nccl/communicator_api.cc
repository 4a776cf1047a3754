// The exported functions that make, ask, register with and end communicators.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/nccl/api.h"
#include "tests/sim/nccl/group.h"

namespace gpusim::nccl {
namespace {

constexpr unsigned kConfigMagic = 0xcafebeef;

std::string& LastError() { return PerThread<std::string>(); }

const char* ErrorText(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

bool IsBlocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT || config->blocking != 0;
}

bool IsValid(const ncclConfig_t* config) { return config == nullptr || config->magic == kConfigMagic; }

// The device's primary context: what the runtime, and so the application, uses.
ncclResult_t ContextOf(int device, CUcontext* context) {
  if (cuInit(0) != CUDA_SUCCESS) {
    return ncclUnhandledCudaError;
  }
  CUdevice handle = 0;
  if (cuDeviceGet(&handle, device) != CUDA_SUCCESS) {
    return ncclInvalidArgument;
  }
  return cuDevicePrimaryCtxRetain(context, handle) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

// The handle is the caller's from here on, and usable when the communicator's state is ncclSuccess.
ncclResult_t Start(std::unique_ptr<Creation> creation, bool blocking, std::string name, ncclComm_t* newcomm) {
  const CommunicatorPtr communicator = creation->Target();
  communicator->SetBlocking(blocking);
  communicator->SetName(std::move(name));
  *newcomm = new ncclComm{communicator};
  const ncclResult_t result = Submit(PendingCreation{std::move(creation), *newcomm});
  if (result != ncclSuccess && result != ncclInProgress) {
    delete *newcomm;
    *newcomm = nullptr;
  }
  return result;
}

ncclResult_t InitRank(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank, int device,
                      uint64_t hash, const ncclConfig_t* config) {
  CUcontext context = nullptr;
  const ncclResult_t found = ContextOf(device, &context);
  if (found != ncclSuccess) {
    return found;
  }
  return Start(CreateFromId(std::make_shared<Communicator>(rank, ranks, device, context, hash), id),
               IsBlocking(config), NameOf(config), newcomm);
}

ncclResult_t InitOwnRank(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank,
                         const ncclConfig_t* config) {
  if (newcomm == nullptr || ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks || !IsValid(config)) {
    return ncclInvalidArgument;
  }
  *newcomm = nullptr;
  return InitRank(newcomm, ranks, id, rank, CurrentDevice(), HashUniqueId(id), config);
}

ncclResult_t InitAll(ncclComm_t* comms, int count, const int* devices) {
  if (comms == nullptr || count < 1 || count > kMaxRanks) {
    return ncclInvalidArgument;
  }
  const ncclUniqueId id = NewUniqueId();
  GroupStart();
  ncclResult_t result = ncclSuccess;
  for (int rank = 0; rank < count && result == ncclSuccess; ++rank) {
    result = InitRank(&comms[rank], count, id, rank, devices == nullptr ? rank : devices[rank],
                      HashUniqueId(id), nullptr);
  }
  if (result != ncclSuccess) {
    float ignored = 0;
    GroupSimulateEnd(&ignored);  // drops what was started
    return result;
  }
  return GroupEnd();
}

std::shared_ptr<Communicator> ChildOf(const Communicator& parent) {
  auto child = std::make_shared<Communicator>(-1, 0, parent.Device(), parent.Context(), 0);
  child->SetParent(parent);
  return child;
}

bool BlockingOf(const ncclConfig_t* config, const Communicator& parent) {
  return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? parent.IsBlocking()
                                                                        : config->blocking != 0;
}

}  // namespace

ncclResult_t Return(ncclResult_t result, const char* function) {
  if (result != ncclSuccess && result != ncclInProgress) {
    LastError() = std::string(function + 1) + ": " + ErrorText(result);  // without the p
  }
  return result;
}

CommunicatorPtr ReadyBehind(ncclComm_t comm) {
  CommunicatorPtr communicator = Behind(comm);
  return communicator != nullptr && communicator->State() == ncclSuccess ? communicator : nullptr;
}

NCCL_API(ncclResult_t, ncclGetVersion, int* version) {
  if (version == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* uniqueId) {
  if (uniqueId == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *uniqueId = NewUniqueId();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return Return(InitOwnRank(comm, nranks, commId, rank, nullptr), __func__);
}

NCCL_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
         ncclConfig_t* config) {
  return Return(InitOwnRank(comm, nranks, commId, rank, config), __func__);
}

NCCL_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank, int nId,
         ncclUniqueId* commIds, ncclConfig_t* config) {
  if (commIds == nullptr || nId < 1 || nId > nranks) {
    return Return(ncclInvalidArgument, __func__);
  }
  return Return(InitOwnRank(newcomm, nranks, commIds[0], myrank, config), __func__);
}

NCCL_API(ncclResult_t, ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist) {
  return Return(InitAll(comm, ndev, devlist), __func__);
}

NCCL_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
         ncclConfig_t* config) {
  const CommunicatorPtr parent = ReadyBehind(comm);
  if (parent == nullptr || newcomm == nullptr || color < NCCL_SPLIT_NOCOLOR || !IsValid(config)) {
    return Return(ncclInvalidArgument, __func__);
  }
  ncclComm_t handle = nullptr;
  const ncclResult_t result = Start(CreateBySplit(ChildOf(*parent), parent, color, key),
                                    BlockingOf(config, *parent), NameOf(config), &handle);
  *newcomm = handle;
  if (color == NCCL_SPLIT_NOCOLOR) {
    delete handle;
    *newcomm = nullptr;
  }
  return Return(result, __func__);
}

NCCL_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
         ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  const CommunicatorPtr parent = ReadyBehind(comm);
  if (parent == nullptr || newcomm == nullptr || excludeRanksList == nullptr || excludeRanksCount < 1 ||
      excludeRanksCount >= parent->Ranks() || !IsValid(config)) {
    return Return(ncclInvalidArgument, __func__);
  }
  const std::vector<int> excluded(excludeRanksList, excludeRanksList + excludeRanksCount);
  for (const int rank : excluded) {
    if (rank < 0 || rank >= parent->Ranks() || rank == parent->Rank()) {
      return Return(ncclInvalidArgument, __func__);
    }
  }
  if ((shrinkFlags & NCCL_SHRINK_ABORT) != 0) {
    parent->Abort();
  }
  return Return(Start(CreateByShrink(ChildOf(*parent), parent, excluded), BlockingOf(config, *parent),
                      NameOf(config), newcomm),
                __func__);
}

// What was issued stays in its streams; there is nothing else to flush.
NCCL_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}

NCCL_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) {
  if (comm == nullptr) {
    return ncclSuccess;
  }
  if (comm->self->State() == ncclInProgress) {
    return Return(ncclInvalidArgument, __func__);
  }
  comm->self->FreeBuffers();
  comm->self->Log("destroyed");
  delete comm;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommAbort, ncclComm_t comm) {
  if (comm == nullptr) {
    return ncclSuccess;
  }
  comm->self->Abort();
  comm->self->FreeBuffers();
  comm->self->Log("aborted");
  delete comm;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags) {
  const CommunicatorPtr communicator = ReadyBehind(comm);
  if (communicator == nullptr || revokeFlags != NCCL_REVOKE_DEFAULT) {
    return Return(ncclInvalidArgument, __func__);
  }
  communicator->Abort();
  communicator->Log("revoked");
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  const CommunicatorPtr communicator = Behind(comm);
  if (communicator == nullptr || asyncError == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *asyncError = communicator->State();
  if (*asyncError == ncclSuccess && communicator->LostRank()) {
    *asyncError = ncclRemoteError;
  }
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  const CommunicatorPtr communicator = ReadyBehind(comm);
  if (communicator == nullptr || count == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *count = communicator->Ranks();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  const CommunicatorPtr communicator = ReadyBehind(comm);
  if (communicator == nullptr || rank == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *rank = communicator->Rank();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  const CommunicatorPtr communicator = ReadyBehind(comm);
  if (communicator == nullptr || device == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *device = communicator->Device();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclMemAlloc, void** ptr, size_t size) {
  if (ptr == nullptr || size == 0) {
    return Return(ncclInvalidArgument, __func__);
  }
  CUcontext context = nullptr;
  if (ContextOf(CurrentDevice(), &context) != ncclSuccess) {
    return Return(ncclUnhandledCudaError, __func__);
  }
  const ContextScope scope(context);
  CUdeviceptr memory = 0;
  if (cuMemAlloc(&memory, size) != CUDA_SUCCESS) {
    return Return(ncclUnhandledCudaError, __func__);
  }
  *ptr = reinterpret_cast<void*>(memory);  // NOLINT(performance-no-int-to-ptr)
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclMemFree, void* ptr) {
  return Return(
      cuMemFree(reinterpret_cast<CUdeviceptr>(ptr)) == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError,
      __func__);
}

// Registration changes how the real library moves data; here the handle only has to be unique and to be given
// back.
NCCL_API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buff, size_t size, void** handle) {
  if (ReadyBehind(comm) == nullptr || buff == nullptr || size == 0 || handle == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *handle = new char;
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  if (ReadyBehind(comm) == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  delete static_cast<char*>(handle);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
         int) {
  if (ReadyBehind(comm) == nullptr || buff == nullptr || size == 0 || win == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  *win = reinterpret_cast<ncclWindow_t>(new char);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  if (ReadyBehind(comm) == nullptr) {
    return Return(ncclInvalidArgument, __func__);
  }
  delete reinterpret_cast<char*>(win);
  return ncclSuccess;
}

NCCL_API(const char*, ncclGetErrorString, ncclResult_t result) { return ErrorText(result); }

NCCL_API(const char*, ncclGetLastError, ncclComm_t) { return LastError().c_str(); }

// The node writes no log whose variables could be read again.
NCCL_API(void, ncclResetDebugInit, void) {}

}  // namespace gpusim::nccl
