// Functions that NCCL 2.29 brought, and some that no NCCL has, for a library of their own (lib_nccl_2_29).
//
// The one-sided ones take what copies of their sizes take on this rank's device and move nothing to another:
// a peer's window is not known here. What waits for a signal finds it.
#include "tests/sim/nccl/api.h"
#include "tests/sim/nccl/group.h"
#include "tests/sim/nccl/operations.h"

namespace gpusim::nccl {

NCCL_API(ncclResult_t, ncclPutSignal, const void* localbuff, size_t count, ncclDataType_t datatype, int peer,
         ncclWindow_t, size_t, int, int, unsigned int, ncclComm_t comm, cudaStream_t stream) {
  const CommunicatorPtr behind = ReadyBehind(comm);
  if (behind == nullptr || peer < 0 || localbuff == nullptr) return Return(ncclInvalidArgument, __func__);
  return Return(Submit(Copy{localbuff, count * TypeSize(datatype), stream}), __func__);
}

NCCL_API(ncclResult_t, ncclSignal, int, int, int, unsigned int, ncclComm_t comm, cudaStream_t) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}

struct WaitSignalDesc;  // ncclWaitSignalDesc_t
NCCL_API(ncclResult_t, ncclWaitSignal, int count, WaitSignalDesc* signals, ncclComm_t comm, cudaStream_t) {
  const bool known = ReadyBehind(comm) != nullptr && count > 0 && signals != nullptr;
  return Return(known ? ncclSuccess : ncclInvalidArgument, __func__);
}

// What a later NCCL may bring.
NCCL_API(ncclResult_t, ncclConjure, ncclComm_t comm) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}
NCCL_API(ncclResult_t, ncclVanish, ncclComm_t comm) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}

}  // namespace gpusim::nccl
