// Finds processes that say they are the same rank at the same time.
//
// A launcher that gives every process RANK=0 has them all record as rank 0, and so does a rank that starts
// processes of its own which use the GPU: they inherit RANK. A rank that is started again after its first
// process ended is no duplicate. Processes that only stand by (bystander.h) do not count. Pure.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {

struct DuplicateRankProcesses {
  int rank = 0;
  std::vector<const model::ProcessModel*> processes;  // in the order in which they joined
};

// By rank.
std::vector<DuplicateRankProcesses> DuplicateRanksOf(const model::JobModel& job);

// What the processes of a job are called: "3", "pid 4711" without a rank, and "3 (pid 4711)" where another
// process says that it is rank 3.
class ProcessLabels {
 public:
  explicit ProcessLabels(const model::JobModel& job);
  std::string Of(const model::ProcessModel& process) const;
  bool IsDuplicate(const model::ProcessModel& process) const { return duplicates_.contains(&process); }

 private:
  std::set<const model::ProcessModel*> duplicates_;
};

}  // namespace gpuprobe::analysis
