// Functions of NCCL after 2.28 that PyTorch 2.15's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"
#include "tests/sim/nccl/api.h"

#define NEWER_ABSENT(name) \
  NCCL_API(void, name) { gpusim::EndForWantOf(#name); }

NEWER_ABSENT(ncclCommGetUniqueId)
NEWER_ABSENT(ncclCommGrow)
NEWER_ABSENT(ncclCommMemStats)
NEWER_ABSENT(ncclCommResume)
NEWER_ABSENT(ncclCommSuspend)
NEWER_ABSENT(ncclGetLsaMultimemDevicePointer)
NEWER_ABSENT(ncclGetPeerDevicePointer)
NEWER_ABSENT(ncclWinGetUserPtr)
