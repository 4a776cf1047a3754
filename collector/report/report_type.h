// The declared fields of the whole report, and of one rank.
#pragma once

#include "collector/report/fields.h"
#include "collector/report/report.h"

namespace gpuprobe::report {

const Type& ReportType();
const Type& RankType();
const Type& LastMomentsType();

}  // namespace gpuprobe::report
