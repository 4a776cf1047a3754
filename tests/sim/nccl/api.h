// How a function is exported: strong as pnccl*, weak as nccl*, at one address, as in the real library.
#pragma once

#include <nccl.h>

#include "tests/sim/nccl/communicator.h"

// NCCL_API(result, ncclName, parameters) { body }
#define NCCL_API(result, name, ...)                                          \
  extern "C" __attribute__((visibility("default"))) result name(__VA_ARGS__) \
      __attribute__((weak, alias("p" #name)));                               \
  extern "C" __attribute__((visibility("default"))) result p##name(__VA_ARGS__)

namespace gpusim::nccl {

// Remembers the failure for ncclGetLastError and passes it on.
ncclResult_t Return(ncclResult_t result, const char* function);

// Null for a null handle.
inline CommunicatorPtr Behind(ncclComm_t comm) { return comm == nullptr ? nullptr : comm->self; }
// Null for one that is null, still in the making or failed.
CommunicatorPtr ReadyBehind(ncclComm_t comm);

}  // namespace gpusim::nccl
