// Decides which calls and which kernels of one batch belong together: the plans.
//
// NCCL fuses the calls of a group, per communicator, into one kernel or several. What the probe sees is the
// calls and, in launch order, the kernels. Rules, in this order:
//   1. A kernel says where its communicator is on the device: where that is known, it is decided.
//   2. Else a kernel belongs to the communicator that was used on the kernel's stream in this batch, and is
//   not on the device elsewhere; if several were (one stream for several communicators, or the default stream
//   of several devices), to one that does not launch in another CUDA context or, before its first launch, on
//   another device; among these, if no more kernels are left than communicators without one, to one of those;
//   else to the first, in the order in which NCCL launches, that has a call of the kernel's operation and
//   type and no such kernel yet. A stream that no call named makes all communicators candidates.
//   3. Within a communicator, kernels of one operation (and element type, where the name says one) form a
//   plan; a call belongs to the plan of its
//      operation. One kind of kernel: one plan for all its calls. A kernel that no call fits joins the
//      communicator's first plan.
//   4. Calls that launch nothing (a collective of one rank, count zero, failed) have plan 0. Calls whose
//   kernels were not seen on this thread keep a plan
//      of their own, without kernels.
// Pure but for the counter that plan ids come from. Any thread; no allocation; bounded: beyond kPlanComms
// communicators in a batch, the rest share the last place.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/calls.h"

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kPlanComms = 64;

// A plan id that nobody has, from 1.
uint64_t NewPlan() noexcept;

// True for a call that has a kernel: accepted, with elements, and not of a rank alone.
bool Launches(const PendingCall& call) noexcept;
bool LaunchesSomething(const CallBatch& batch) noexcept;

// Fills event.plan of each call and plan and comm of each launch.
void AssignPlans(CallBatch& batch) noexcept;

}  // namespace gpuprobe::injector::nccl
