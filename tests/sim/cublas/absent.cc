// The functions of cuBLAS that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

#include "tests/sim/cublas/absent.inc"
