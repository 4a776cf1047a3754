// Hooks for the driver functions that put work on a stream: a launch event at each entry ties the work's
// record to the host's thread and range.
//
// Runtime functions are not needed: a runtime launch is a driver launch with the same correlation id. Thread:
// the application's, inside a guard. Allocation: none. Measured cost: see tests/injector/launch_bench.cc.
#pragma once

#include <cstdint>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector {

// Adds the hooks to the callback table; before the session chooses its callbacks.
void AddLaunchHooks() noexcept;

// A graph node was made. If the thread is inside a launch, that launch is captured as this node.
void NoteCaptured(ThreadState& thread, uint64_t node) noexcept;

}  // namespace gpuprobe::injector
