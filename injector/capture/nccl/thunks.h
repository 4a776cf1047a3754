// Addresses of the wrappers that patched relocations point to: one set for each copy of NCCL in the process.
//
// Only one file instantiates the wrappers. Any thread; constant data.
#pragma once

#include "injector/capture/nccl/entry_points.h"
#include "injector/capture/nccl/real_functions.h"

namespace gpuprobe::injector::nccl {

// Null unless kFirstProviderWay <= way < kWays.
void* Thunk(int way, EntryPoint entry_point) noexcept;

}  // namespace gpuprobe::injector::nccl
