// What the members of a job (model/job/member.h) are called, and where a report describes them.
#pragma once

#include <string>
#include <vector>

#include "collector/model/job/member.h"
#include "collector/report/ranks.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

class ProcessLabels;

// RankReport::label
std::string LabelOf(const model::JobModel& job, const ProcessLabels& labels, const model::Member& member);
// nullptr: it is not in the report.
const RankReport* RankReportOf(const std::vector<RankReport>& ranks, const model::Member& member);

}  // namespace gpuprobe::analysis
