// Collective series of the model as report entries, one process's or all ranks' together.
//
// Separate from the rest of the report because bandwidths, fused plans and waiting have their own rules.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "collector/report/collectives.h"

namespace gpuprobe::model {
class JobModel;
struct CollectiveSeries;
struct Member;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

// What tells one entry of a job's collectives from the others: operation, communicator, whether its sizes are
// mixed, size, calls of a plan.
using CollectiveKey = std::tuple<std::string, std::string, bool, uint64_t, uint32_t>;
CollectiveKey KeyOf(const CollectiveReport& collective);
CollectiveKey KeyOf(const model::Member& member, const model::CollectiveSeries& series);

std::vector<CollectiveReport> CollectivesOf(const model::Member& member);
// Equal (operation, communicator, size) of all processes in one entry; most time first.
std::vector<CollectiveReport> CollectivesOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
