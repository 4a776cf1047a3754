// Numbers executable CUDA graphs, so that each launch and each node can name its graph.
//
// A destroyed graph's address is reused at once, a number never is: ranks can be compared by what they did
// with the n-th graph. Thread: any application thread, inside the guard. Allocation: none; 64 KB of zero
// pages. Failure: when a set of the table is full, its oldest graph is evicted, and later launches of it
// count as launches of an unknown graph.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

inline constexpr uint32_t kGraphSets = 1024;
inline constexpr uint32_t kGraphWays = 4;
inline constexpr uint32_t kUnseenGraph = UINT32_MAX;

// Adds the hooks of instantiation and destruction to the callback table. While a graph is instantiated,
// ThreadState::instantiating_graph is its number.
void AddExecutableGraphHooks() noexcept;

// kUnseenGraph if its creation was not seen.
uint32_t NumberOfGraph(const void* executable) noexcept;

}  // namespace gpuprobe::injector
