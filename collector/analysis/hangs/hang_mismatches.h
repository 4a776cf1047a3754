// Collectives that the ranks of a communicator issued differently, such as an AllReduce of 1,000 elements on
// three ranks and of 1,024 on the fourth. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

struct Mismatches {
  std::vector<Hang> hangs;             // of each communicator the first, and the one that its ranks wait in
  std::map<uint64_t, uint64_t> first;  // communicator's hash: the first that is not over
};

// The first mismatch of a communicator is reported at once, as soon as the ranks had time to report their
// calls; a later one when its ranks have waited in it for `after_ns`, since the first one did no harm.
Mismatches FindMismatches(const model::JobModel& job, uint64_t now_ns, uint64_t after_ns);

}  // namespace gpuprobe::analysis
