// What CUPTI adds to the program's time while it records kernels, where that was measured (an H100 with CUPTI
// 13.0, docs/real-hardware.md). It cannot be measured in the program itself: most of it stays when kernels
// are no longer recorded. The injector holds its budget by it, and the report quotes it. Plain constexpr
// data.
#pragma once

#include <cstdint>

namespace gpuprobe::cupti {

inline constexpr uint64_t kLaunchLeastNs = 1'000;
inline constexpr uint64_t kLaunchMostNs = 3'000;
// Of a CUDA graph that is recorded node by node.
inline constexpr uint64_t kGraphNodeLeastNs = 100;  // where kernels are long enough to hide it
inline constexpr uint64_t kGraphNodeMostNs = 1'400;

}  // namespace gpuprobe::cupti
