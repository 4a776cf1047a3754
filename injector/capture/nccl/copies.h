// Copies that NCCL launches instead of a kernel: for one-sided calls, and from 2.28 on for some others, which
// copy engines can run.
//
// Thread: the application's, inside the guard unless noted. Allocation: none. Failure: copies that may belong
// to several communicators are attributed to none.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

bool AnyOneSided(const CallBatch& batch) noexcept;

// A call of its own, or the launching end of a group, begins. Inside or outside the guard.
void ForgetCopies(ThreadState& thread) noexcept;

// The copies that NCCL launches on this thread from now on belong to one-sided calls. Inside or outside the
// guard.
void BeginCopies(ThreadState& thread) noexcept;

// Reports the copies since BeginCopies, if it was called, as one plan. `guarded`: inside the guard.
void EndCopies(ThreadState& thread, CallBatch& batch, bool guarded) noexcept;

// Reports the copies that NCCL launched for a batch that has neither kernel nor one-sided call.
void EmitCopies(ThreadState& thread, CallBatch& batch) noexcept;

// A copy or memset was launched inside an NCCL call, or turns out to be captured as a node of a CUDA graph
// (CopyHooks of injector/capture/cupti/callbacks.h).
void NoteCopy(ThreadState& thread, uint32_t correlation) noexcept;
void NoteCopyCaptured(ThreadState& thread) noexcept;

// The plan of the one-sided calls that are copying now; 0: none.
uint64_t PlanOfCopies(const ThreadState& thread) noexcept;

// The last copy for that plan was captured as a node. Returns the plan.
uint64_t CapturePlannedCopy(ThreadState& thread) noexcept;

}  // namespace gpuprobe::injector::nccl
