// The files of a report in its run's directory: report.html, report.json, and their like.
#pragma once

#include "absl/status/status.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/store/directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::recording {

// report.json comes last: a run that has it is finished. All files are written at once, and none into a run
// that is being removed (NotFound): the removal would fail on a folder that is not empty.
absl::Status WriteReportFiles(const store::Directory& directory, const store::RunFiles& files,
                              const model::JobModel& job, const analysis::Report& report);

}  // namespace gpuprobe::recording
