// Helpers for recording a call that obtains or releases memory: its arguments, its result, and the event.
//
// Shared by linear memory and pools (part.cc), arrays and physical memory. Thread: the application's, inside
// CUPTI's callback at the call's exit. Allocation: none. Failure: an event for which there is no room is
// counted by its ring.
#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>

#include <cstdint>

#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector::memory_calls {

// The first argument of every releasing call: the address or handle itself.
struct FreeArguments {
  uint64_t address;
};

template <typename Arguments>
const Arguments& ArgumentsOf(const CUpti_CallbackData& data) noexcept {
  return *static_cast<const Arguments*>(data.functionParams);
}

// cudaError_t and CUresult both are an int whose 0 is success.
inline bool Succeeded(const CUpti_CallbackData& data) noexcept {
  return data.functionReturnValue != nullptr && *static_cast<const int*>(data.functionReturnValue) == 0;
}

// The number is the same in both APIs.
static_assert(int{CUDA_ERROR_OUT_OF_MEMORY} == int{cudaErrorMemoryAllocation});
inline bool Refused(const CUpti_CallbackData& data) noexcept {
  return data.functionReturnValue != nullptr &&
         *static_cast<const int*>(data.functionReturnValue) == CUDA_ERROR_OUT_OF_MEMORY;
}

struct Memory {
  wire::MemoryKind kind;
  uint64_t address;  // or handle
  uint64_t bytes;
  int32_t device;
  const void* context;  // null: outlives every context
  uint8_t what = 0;     // AllocationWhat
};

inline AllocationEvent EventOf(const ThreadState& thread, const Memory& memory) noexcept {
  AllocationEvent event{};
  event.time_ns = Stamp();
  event.began_ns = thread.memory_call_began_ns;
  event.address = memory.address;
  event.bytes = memory.bytes;
  event.range_id = InnermostRange(thread);
  event.context = reinterpret_cast<uint64_t>(memory.context);
  event.device = memory.device;
  event.memory = static_cast<uint8_t>(memory.kind);
  event.what = memory.what;
  event.by_nccl = AllocatesForNccl(thread) ? 1 : 0;
  return event;
}

// A success without an address gave nothing: zero bytes were asked for.
inline void ReportAllocation(ThreadState& thread, const CUpti_CallbackData& data, Memory memory) noexcept {
  const bool failed = !Succeeded(data);
  if (failed ? !Refused(data) : memory.address == 0) return;
  if (failed) memory.address = 0;
  AllocationEvent event = EventOf(thread, memory);
  event.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpAlloc);
  event.failed = failed ? 1 : 0;
  if (failed)
    RecordFailure(thread, {flight::FailureKind::kAllocation, CUDA_ERROR_OUT_OF_MEMORY, memory.bytes,
                           data.functionName});
  Emit(thread, event);
}

inline void ReportRelease(ThreadState& thread, const Memory& memory) noexcept {
  AllocationEvent event = EventOf(thread, memory);
  event.op = static_cast<uint8_t>(wire::AllocationOp::kAllocationOpFree);
  Emit(thread, event);
}

}  // namespace gpuprobe::injector::memory_calls
