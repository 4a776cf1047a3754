// What level calls shows of a job. Pure.
#pragma once

#include <optional>

#include "collector/report/call_trace.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

// None where no process is at level calls.
std::optional<CallTraceReport> CallTraceOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
