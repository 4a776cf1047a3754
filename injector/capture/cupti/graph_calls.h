// Hooks for the driver functions that copy and nest graphs, and make, update, launch and destroy executable
// ones. They record which graph an executable one came from, for memory that graphs allocate and for NCCL
// calls in graphs that are updated.
//
// launches.h ties work to its launch. Thread: the application's, inside a guard. Allocation: none. Failure: a
// lost event leaves an executable graph unknown: its allocations are not reported, and its NCCL kernels are
// known only by name once it is updated.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

// True once a node that allocates was made: until then a launch costs one look at this.
extern std::atomic<bool> any_graph_memory;

// Adds the hooks to the callback table; before the session chooses its callbacks.
void AddGraphHooks() noexcept;

}  // namespace gpuprobe::injector
