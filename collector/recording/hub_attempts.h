// What a hub keeps of the steps of a job that is over, and how they compare with its last attempt's.
//
//   steps.json     in the run's directory: the parts of its steps, means over the ranks, block by block
//
// The comparison is that of `gpuprobe diff`, between these means. It needs no records of either attempt, and
// what is kept does not grow with the ranks: at most model::StepBlocks::kMost values of each part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "collector/http/attempts.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/store/directory.h"

namespace gpuprobe::recording {

struct LastAttempt {
  uint64_t number = 0;
  std::string directory;
};

// Null if the job has no steps. Writes steps.json, on which the next attempt's comparison depends.
std::shared_ptr<const http::ListedSteps> StepsOfAttempt(const model::JobModel& job,
                                                        const analysis::Report& report,
                                                        const store::Directory& directory,
                                                        const std::optional<LastAttempt>& last);

}  // namespace gpuprobe::recording
