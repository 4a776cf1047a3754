// From when to when a process was heard.
#pragma once

#include <cstdint>

#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {

// Its first event, or its Hello if that came before; 0: not known.
uint64_t FirstNs(const model::ProcessModel& process);
uint64_t LastNs(const model::ProcessModel& process);
// From the first to the last; 0: not known.
uint64_t DurationNs(const model::ProcessModel& process);

}  // namespace gpuprobe::analysis
