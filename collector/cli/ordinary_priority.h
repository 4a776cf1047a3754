// Drops a real-time or raised priority (processor or disk) and any processor affinity: these were meant for
// the program, not for its recording.
#pragma once

namespace gpuprobe::cli {

// For all threads of this process. A lowered priority (nice, SCHED_BATCH, SCHED_IDLE) is kept.
void RunAtOrdinaryPriority();

}  // namespace gpuprobe::cli
