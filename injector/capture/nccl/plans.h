// Decides which calls and which kernels of one batch belong together: the plans.
//
// NCCL fuses the calls of a group, per communicator, into one kernel or several. The probe sees the calls
// and, in launch order, the kernels. Rules, in this order:
//   1. A kernel names its communicator's address on the device: if that is known, it decides.
//   2. Else a kernel belongs to the communicator that was used on the kernel's stream in this batch, and has
//      no other address on the device. If several were (one stream for several communicators, or the default
//      stream of several devices), to one that does not launch in another CUDA context or, before its first
//      launch, on another device. Among these, if no more kernels are left than communicators without one, to
//      one of those; else to the first, in NCCL's launch order, that has a call of the kernel's operation and
//      type and no such kernel yet. A stream that no call named makes all communicators candidates.
//   3. Within a communicator, kernels of one operation (and element type, if the name says one) form a plan;
//      a call belongs to the plan of its operation. With one kind of kernel there is one plan for all calls.
//      A kernel that fits no call joins the communicator's first plan.
//   4. Calls that launch nothing (a collective of one rank, count zero, failed) have plan 0. Calls whose
//      kernels were not seen on this thread keep a plan of their own, without kernels.
// Pure except for the counter that plan ids come from. Any thread; no allocation; bounded: beyond kPlanComms
// communicators in a batch, the rest share the last place.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/calls.h"

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kPlanComms = 64;

// A new plan id, from 1.
uint64_t NewPlan() noexcept;

// True for a call that has a kernel: accepted, with elements, and not of a rank alone.
bool Launches(const PendingCall& call) noexcept;
bool LaunchesSomething(const CallBatch& batch) noexcept;

// Fills event.plan of each call and plan and comm of each launch.
void AssignPlans(CallBatch& batch) noexcept;

}  // namespace gpuprobe::injector::nccl
