// Whose a kernel of NCCL's is, at its launch: where all ways of seeing a call meet.
//
// Separate from the driver callbacks that lead here (part.cc) so that tests can be the driver. In this order:
// the call of the application's that is being made on this thread; the group that ends past the wrappers here
// (torn_groups.h); a call of a communicator that does not block (awaited.h); what NCCL will tell its plugin
// (plugin.h). A kernel that is none of these is known by its name, in the collector. Thread: the
// application's or NCCL's own, inside the guard. Allocation: none. Failure: what does not fit is counted
// where it would have gone.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// A kernel launch is entered on this thread; any kernel. Other kernels cost a look at their names.
void NoteLaunch(ThreadState& thread, const KernelLaunch& kernel) noexcept;

}  // namespace gpuprobe::injector::nccl
