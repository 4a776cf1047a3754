// Numbers for executable CUDA graphs: which one a launch launches, and of which one a node is.
//
// Separate because addresses of graphs come again as soon as one was destroyed, and their numbers do not:
// what ranks did with the n-th graph can be compared. Thread: any application thread, inside the guard.
// Allocation: none; 64 KB of zero pages. Failure: when a set of the table is full, the graph made first gives
// way, and its launches are of a graph whose making was not seen.
#pragma once

#include <cstdint>

namespace gpuprobe::injector {

inline constexpr uint32_t kGraphSets = 1024;
inline constexpr uint32_t kGraphWays = 4;
inline constexpr uint32_t kUnseenGraph = UINT32_MAX;

// Adds the hooks of instantiation and destruction to the callback table. While a graph is instantiated,
// ThreadState::instantiating_graph is its number.
void AddExecutableGraphHooks() noexcept;

// kUnseenGraph for one that was not seen to be made.
uint32_t NumberOfGraph(const void* executable) noexcept;

}  // namespace gpuprobe::injector
