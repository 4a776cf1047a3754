// What a job with very many ranks is reported with besides its rows: the states of the processes that matter
// most (JobModel::LeavesStatesOut), from their logs.
#pragma once

#include "collector/model/job/job_model.h"
#include "collector/store/run_files.h"

namespace gpuprobe::store {

// Before JobModel::Finish. Nothing, if no state was left out. What cannot be read is left as it is.
void LoadDetail(const RunFiles& files, model::JobModel& job);

}  // namespace gpuprobe::store
