// Gives up a real-time or raised priority, for the processor or the disk, and a binding to processors: what a
// program is to have, and its recording is not.
#pragma once

namespace gpuprobe::cli {

// For all threads of this process. A lowered priority (nice, SCHED_BATCH, SCHED_IDLE) is kept.
void RunAtOrdinaryPriority();

}  // namespace gpuprobe::cli
