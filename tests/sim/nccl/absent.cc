// Functions that PyTorch's loader wants to find, and that nothing simulates: under both names, as all of NCCL's.
#include "tests/sim/absent/absent.h"

#define ABSENT_BOTH(name) \
  ABSENT(p##name)         \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default"))) void name();

ABSENT_BOTH(ncclDevCommCreate)
ABSENT_BOTH(ncclDevCommDestroy)
