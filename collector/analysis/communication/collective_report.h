// Collective series of the model as report entries, one process's or all ranks' together.
//
// Separate from the rest of the report because bandwidths, fused plans and waiting have their own rules.
#pragma once

#include <vector>

#include "collector/report/collectives.h"

namespace gpuprobe::model {
class JobModel;
struct Member;
}  // namespace gpuprobe::model

namespace gpuprobe::analysis {

std::vector<CollectiveReport> CollectivesOf(const model::Member& member);
// Equal (operation, communicator, size) of all processes in one entry; most time first.
std::vector<CollectiveReport> CollectivesOf(const model::JobModel& job);

}  // namespace gpuprobe::analysis
