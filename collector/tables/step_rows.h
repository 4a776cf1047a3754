// Steps as rows: one a step for tables, and one a step and phase for tools that follow training logs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collector/model/steps/step_record.h"

namespace gpuprobe::tables {

struct StepOwner {
  int rank = -1;
  uint32_t pid = 0;
  int world_size = 0;
  std::optional<uint32_t> gpu = {};  // one of several that its process drives
};

// {"kind":"step","rank":3,"pid":4711,"step":12,"start_ns":...}: times in nanoseconds, as the process's clock
// said.
std::string StepRow(const StepOwner& owner, const model::StepRecord& step);
// {"step":12,"phase":"forward","seconds":0.0123,"rank":3,"world_size":8}, a line each; the phase "step" is
// the whole.
std::string StepTimingLines(const StepOwner& owner, const model::StepRecord& step);

}  // namespace gpuprobe::tables
