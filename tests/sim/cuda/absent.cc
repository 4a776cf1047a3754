// Functions that PyTorch's loader wants to find, and that nothing simulates.
#include "tests/sim/absent/absent.h"

ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate_v2)
ABSENT(cuTensorMapEncodeTiled)
