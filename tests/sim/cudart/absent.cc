// Functions that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

ABSENT(cudaGraphConditionalHandleCreate)
ABSENT(cudaGraphDebugDotPrint)
ABSENT(cudaIpcGetEventHandle)
ABSENT(cudaIpcOpenEventHandle)
ABSENT(cudaKernelSetAttributeForDevice)
ABSENT(cudaLibraryGetGlobal)
ABSENT(cudaLibraryGetKernel)
ABSENT(cudaLibraryGetKernelCount)
ABSENT(cudaLibraryGetManaged)
ABSENT(cudaLibraryGetUnifiedFunction)
ABSENT(cudaLibraryLoadData)
ABSENT(cudaLibraryLoadFromFile)
ABSENT(cudaLibraryUnload)
