// The series that report.html draws besides report.json: every rank's steps, timelines of a few steps, and
// memory over time. docs/internals/page-data.md describes the document.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/store/run_files.h"

namespace gpuprobe::page {

// JSON: the steps of a run as PageData has them, and how many of the first are warm-up.
std::string StepsData(const model::JobModel& job, const analysis::Report& report);

// `files`: of the run, for the timelines. `wanted`: steps that have one besides (chosen_steps.h).
std::string PageData(const model::JobModel& job, const analysis::Report& report, const store::RunFiles& files,
                     std::span<const uint64_t> wanted = {});

}  // namespace gpuprobe::page
