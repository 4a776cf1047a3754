// Functions that NCCL 2.29 brought, for a library of their own (lib_nccl_2_29): what a probe that does not
// know them makes of a program that calls them. They move nothing here.

#include "tests/sim/nccl/api.h"

namespace gpusim::nccl {

NCCL_API(ncclResult_t, ncclPutSignal, const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int,
         int, unsigned int, ncclComm_t comm, cudaStream_t) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}

NCCL_API(ncclResult_t, ncclSignal, int, int, int, unsigned int, ncclComm_t comm, cudaStream_t) {
  return Return(ReadyBehind(comm) == nullptr ? ncclInvalidArgument : ncclSuccess, __func__);
}

}  // namespace gpusim::nccl
