// Hooks at the exit of driver and runtime calls that make CUDA arrays.
//
// Unlike other allocations, each API describes an array's bytes in its own way. Thread: the application's.
// Allocation: none.
#pragma once

#include <cupti.h>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector::memory_calls {

void AllocatedArray(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void AllocatedArray3D(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void AllocatedMipmaps(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void AllocatedRuntimeArray(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void AllocatedRuntimeArray3D(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void AllocatedRuntimeMipmaps(ThreadState& thread, const CUpti_CallbackData& data) noexcept;

}  // namespace gpuprobe::injector::memory_calls
