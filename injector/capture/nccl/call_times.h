// How long collectives are on the GPU, at level calls: from NCCL's reports of a kernel's channels.
//
// A kernel's channels note their start and end in memory that NCCL's proxy thread reads, so no CUPTI record
// is needed. A collective gets a place in a table when NCCL reports it; the first of its channels that begins
// gives its time. Only GPUPROBE_NCCL_TIMES asks for it: NCCL makes a proxy operation for each plan then,
// which nobody should pay who has not asked.
//
// Thread: those of plugin.h; channels come on NCCL's proxy threads. Allocation: none; a static table.
// Failure: beyond kTimedCalls collectives that have not ended, the older ones' places are used again, and
// their times are missing: the report's timed calls are fewer than its calls.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/plugin.h"

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kTimedCalls = 4096;

bool CallsAreTimed() noexcept;

// A collective was reported. The handle of its event; null: it is not timed.
void* BeginTimedCall(PluginCommunicator* comm, EntryPoint op) noexcept;
// A channel of the call with this handle began at `gpu_ns`. The handle of its event; null: nobody needs its
// end.
void* BeginTimedChannel(void* call, uint64_t gpu_ns) noexcept;
// The channel with this handle ended. Ignores every other handle.
void EndTimedChannel(void* channel, uint64_t gpu_ns) noexcept;

}  // namespace gpuprobe::injector::nccl
