// A step as a row of roll-ups, and back.
#pragma once

#include "collector/model/steps/step_record.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

// Without what only the tracker knows: place, device, kernels, follows, revision, annotated.
RankStepRecord RowOf(const StepRecord& step);
StepRecord RecordOf(const RankStepRecord& row);

}  // namespace gpuprobe::model
