// Which of the threads that were seen at one moment explains what their process does.
//
// It is the thread that launches, unless that waits for another thread (in a lock, a queue, a join) that is
// itself at work. Example: backward() waits in the main thread while autograd's thread allocates memory: the
// call is that thread's, the line train.py:20 the main thread's. If it waits for the interpreter's lock, all
// of the place is the thread's that has it, and says so (kLockHeld).
#pragma once

#include <cstdint>
#include <span>

#include "collector/model/process/host_frames.h"
#include "collector/model/steps/host_activity.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// In place of HostSampleRecord.call: the thread waits for the interpreter's lock.
inline constexpr uint32_t kTakesLock = UINT32_MAX;

// `launcher`: ThreadDef of the thread that launches; `other`: of one that launches, too, or the same.
// REQUIRES: there is one at least, and all were seen at one time.
HostSample WitnessOf(std::span<const HostSampleRecord> threads, uint32_t launcher, uint32_t other,
                     const HostFrames& frames);

}  // namespace gpuprobe::model
