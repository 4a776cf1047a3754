// Functions that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

ABSENT(ncclDevCommCreate)
ABSENT(ncclDevCommDestroy)
