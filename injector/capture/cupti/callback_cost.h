// Measures how long CUPTI takes to call us before and after a driver function.
//
// It times a function that does next to nothing, on our own thread, with and without the callback enabled.
// The program is not affected: its own calls of that function also reach us meanwhile, but do nothing there.
// Thread: the probe's own. Allocation: none.
#pragma once

#include <cstdint>

#include "injector/capture/cupti/function_table.h"

namespace gpuprobe::injector {

// Both calls of one driver function together, in nanoseconds; 0: could not be measured.
uint64_t MeasureCallbacks(const CuptiApi& api, CUpti_SubscriberHandle subscriber) noexcept;

}  // namespace gpuprobe::injector
