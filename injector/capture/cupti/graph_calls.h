// The driver functions that copy graphs, put them into others, and make, update, launch and destroy
// executable ones, as far as somebody has to know which graph an executable one came from: memory that graphs
// allocate, and NCCL calls in graphs that are updated.
//
// Separate from launches.h, which ties work to its launch. Thread: the application's, inside a guard.
// Allocation: none. Failure: an event that is lost leaves an executable graph unknown: what it allocates is
// not told, and the kernels of NCCL's in it are known by name once it is updated.
#pragma once

#include <atomic>
#include <cstdint>

namespace gpuprobe::injector {

// True once a node that allocates was made: until then a launch costs one look at this.
extern std::atomic<bool> any_graph_memory;

// Adds the hooks to the callback table; before the session chooses its callbacks.
void AddGraphHooks() noexcept;

}  // namespace gpuprobe::injector
