// Memory that graphs allocate: addresses when a node is made, memory when the graph is launched.
//
// As CUDA documents it: an allocation node has its address from the moment it is made; a node that depends on
// the release of an earlier one reuses that one's address if it fits. A launch obtains what the graph does
// not have yet. Memory that the graph releases itself stays with the executable graph; other memory lives
// until somebody releases its address. Unused memory is kept for other graphs, in granules, until the
// device's graph memory is trimmed. The truth's lines have memory "graph": one for what an executable graph
// has for itself (its address is the lowest), and one for each allocation that outlives a launch.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpusim {

// With the schedule's mutex held, when a node of this type was added: gives it its address.
void PlaceGraphMemoryLocked(CUgraphNode node);

// A launch, before its work is enqueued; without the mutex.
CUresult ObtainGraphMemory(CUgraphExec exec);
// The executable graph is destroyed.
void ReturnGraphMemory(CUgraphExec exec);
// The context ends, and with it what launches in it obtained.
void ReturnGraphMemoryOfContext(CUcontext context);
// A call, or another graph's node, releases what a launch left. False if there is no such memory.
bool ReleaseGraphAllocation(uint64_t address);

void TrimGraphMemory(int device);
CUresult GraphMemoryAttribute(int device, CUgraphMem_attribute attribute, uint64_t* value);
CUresult ResetGraphMemoryAttribute(int device, CUgraphMem_attribute attribute);

}  // namespace gpusim
