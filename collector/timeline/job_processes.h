// The processes of a replayed job as a timeline names them, and the ranks of their communicators.
#pragma once

#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/timeline/events.h"
#include "collector/timeline/process_timeline.h"

namespace gpuprobe::timeline {

std::vector<Process> ProcessesOf(const model::JobModel& job);
GroupRanks GroupRanksOf(const model::JobModel& job);

}  // namespace gpuprobe::timeline
