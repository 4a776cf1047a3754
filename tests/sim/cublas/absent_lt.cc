// The functions of cuBLASLt that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

ABSENT(cublasLtMatmulAlgoCheck)
ABSENT(cublasLtMatmulAlgoConfigGetAttribute)
ABSENT(cublasLtMatmulAlgoConfigSetAttribute)
ABSENT(cublasLtMatmulAlgoInit)
