// Describes a collective call as the ranks of a communicator issued it, for a hang or a mismatch. Pure.
#pragma once

#include <cstdint>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

// The call with one of its signatures (index into Call::signatures).
CallShape ShapeOfCall(const model::JobModel& job, const model::IssuedCalls::Call& call, uint32_t signature);

// A hang in this call, without ranks and times. The shape is the first signature's.
Hang HangInCall(const model::JobModel& job, uint64_t hash, const model::IssuedCalls::Communicator& comm,
                const model::IssuedCalls::Call& call);

}  // namespace gpuprobe::analysis
