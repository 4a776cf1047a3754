// Attributes an NCCL kernel at its launch, where all ways of seeing a call meet.
//
// The candidates, in this order: the application's current call on this thread; a group whose end the
// wrappers miss here (torn_groups.h); a call on a non-blocking communicator (awaited.h); what NCCL will
// report to its plugin (plugin.h). A kernel that matches none is known in the collector by its name. The
// driver callbacks are in part.cc, so that tests can play the driver. Thread: the application's or NCCL's
// own, inside the guard. Allocation: none. Failure: what does not fit is counted where it would have gone.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/calls.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// A kernel launch is entered on this thread; any kernel. Other kernels cost a look at their names.
void NoteLaunch(ThreadState& thread, const KernelLaunch& kernel) noexcept;

}  // namespace gpuprobe::injector::nccl
