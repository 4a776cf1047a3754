// Functions of NCCL's device headers that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

#include "tests/sim/nccl/api.h"

NCCL_API(void, ncclDevCommCreate) { gpusim::EndForWantOf("ncclDevCommCreate"); }
NCCL_API(void, ncclDevCommDestroy) { gpusim::EndForWantOf("ncclDevCommDestroy"); }
