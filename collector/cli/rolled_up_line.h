// What a command that needs records says of a run that has only roll-ups of some hosts
// (store/roll_up_recording.h).
#pragma once

#include <string>

#include "collector/model/job/job_model.h"

namespace gpuprobe::cli {

// "of what n2 recorded there are only roll-ups here, steps and NCCL calls; its kernels, copies and
// allocations are in the run's directory on n2"; empty: all of it has records.
std::string RolledUpLine(const model::JobModel& job);

}  // namespace gpuprobe::cli
