// One library of functions that are not simulated; GPUSIM_ABSENT names the table.
#include "tests/sim/absent/absent.h"

#include GPUSIM_ABSENT
