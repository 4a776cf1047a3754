// Turns NVTX calls into events and keeps the thread's stack of open ranges: push, pop, start, end, and marks.
//
// The handlers (handlers.cc) only unpack NVTX's many call forms. Thread: the application's. Allocation: none.
// Failure: while the probe is not live only the stack is kept, with id 0 for unrecorded ranges, so that later
// pops match; beyond kMaxRangeDepth a range has a depth but no record. A range whose beginning found no room
// in the thread's ring has no end either, so that it counts as one record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "injector/capture/nvtx/arguments.h"
#include "injector/capture/nvtx/payload_abi.h"

namespace gpuprobe::injector::nvtx {

// Level of the new range in its domain's stack on this thread, from 0.
int Push(void* domain, const Passed& passed) noexcept;
// Adds payloads to a range: `id` as Start returned it, or 0: the domain's innermost range on this thread.
void AddPayloads(void* domain, uint64_t id, const abi::PayloadData* extended, size_t count) noexcept;

// Level of the range that was popped; -1 when none was open in the domain, which is counted.
int Pop(void* domain) noexcept;
// Id for End; 0 while the probe is not live.
uint64_t Start(void* domain, const Passed& passed) noexcept;
// An id that no open range has is counted.
void End(uint64_t id) noexcept;
void Mark(void* domain, const Passed& passed) noexcept;

}  // namespace gpuprobe::injector::nvtx
