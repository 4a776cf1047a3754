// Collectives that the ranks of a communicator issued differently, such as an AllReduce of 1,000 elements on
// three ranks and of 1,024 on the fourth. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "collector/analysis/hang.h"
#include "collector/model/job/job_model.h"

namespace gpuprobe::analysis {

struct Mismatches {
  std::vector<Hang> hangs;           // the first of each communicator; later ones follow from it
  std::set<uint64_t> communicators;  // hashes
};

// A mismatch is reported at once, as soon as the ranks had time to report their calls.
Mismatches FindMismatches(const model::JobModel& job, uint64_t now_ns);

}  // namespace gpuprobe::analysis
