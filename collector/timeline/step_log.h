// Every step of every process, collected while a run is replayed: the model keeps only the last ones.
#pragma once

#include <cstdint>
#include <map>
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

  // The steps of the process at this place in the job, in order; times are on its line.
  const std::vector<model::StepRecord>& Of(uint32_t index) const;

 private:
  std::map<const model::ProcessModel*, std::vector<model::StepRecord>> watched_;
  std::vector<std::vector<model::StepRecord>> steps_;
};

}  // namespace gpuprobe::timeline
