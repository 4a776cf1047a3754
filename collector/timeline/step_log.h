// Every step of every member of the job, collected while a run is replayed: the model keeps only the last
// ones.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::timeline {

class StepLog {
 public:
  // After each batch of a process.
  void Watch(const model::ProcessModel& process);
  // Once the job is finished: the last steps, what is warm-up, and the numbers that all ranks share.
  void Finish(const model::JobModel& job);

  // The steps of the member with this number, in order; times are on its process's line.
  const std::vector<model::StepRecord>& Of(uint32_t member) const;

 private:
  // By process and place in its DeviceSteps.
  std::map<std::pair<const model::ProcessModel*, size_t>, std::vector<model::StepRecord>> watched_;
  std::vector<std::vector<model::StepRecord>> steps_;
};

}  // namespace gpuprobe::timeline
