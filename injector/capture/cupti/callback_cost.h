// What CUPTI takes to call us before and after a driver function.
//
// Separate from the session because it is a measurement: on a thread of ours, of a function that does next to
// nothing, with and without our being called. Nothing of the program's is touched; its own calls of that
// function lead to us meanwhile, and to nothing there. Thread: the probe's own. Allocation: none.
#pragma once

#include <cstdint>

#include "injector/capture/cupti/function_table.h"

namespace gpuprobe::injector {

// Both calls of one driver function together, in nanoseconds; 0: could not be measured.
uint64_t MeasureCallbacks(const CuptiApi& api, CUpti_SubscriberHandle subscriber) noexcept;

}  // namespace gpuprobe::injector
