// Hooks at the exit of virtual memory API calls: those that make, keep and end physical memory, and those
// that bind it to multicast objects and into sparse arrays.
//
// Unlike other allocations, no single call obtains or releases this memory for good: the ledger counts
// references (ledgers/physical_memory.h). Thread: the application's. Allocation: none.
#pragma once

#include <cupti.h>

#include "injector/core/thread_state.h"

namespace gpuprobe::injector::memory_calls {

void CreatedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void ReleasedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void RetainedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void MappedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void UnmappedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void MappedIntoArrays(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void ImportedHandle(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
#if CUDA_VERSION >= 12020
void MadeMulticastObject(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void BoundMemory(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void BoundAddress(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
void UnboundMemory(ThreadState& thread, const CUpti_CallbackData& data) noexcept;
#endif

}  // namespace gpuprobe::injector::memory_calls
