// Resumes a run whose collector died, where its logs end.
//
// Example: rank-0.gpr holds batches 1 to 33 and half a chunk. The half chunk is cut off, the batches are
// replayed, and the process learns that 33 is on record: it sends batches from 34 on, which are written
// behind them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/model/job/job_model.h"
#include "collector/store/run_recording.h"

namespace gpuprobe::store {

struct Resumed {
  RunRecording::Unfinished recording;
  std::vector<const model::ProcessModel*> processes;  // whose logs these are
  std::vector<std::string> notes;                     // what was done to the files, a line each
};

// Replays the run into `job`, which is empty and knows the step marker, and cuts unfinished chunks off its
// logs. The caller holds the directory's lock. `realtime_ns` is now.
absl::StatusOr<Resumed> ResumeRun(const Directory& directory, model::JobModel& job, uint64_t realtime_ns);

}  // namespace gpuprobe::store
