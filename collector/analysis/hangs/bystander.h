// Tells processes that only stand by from the ranks of a job.
//
// A launcher such as torchrun initialises CUDA to count GPUs, and torch.compile's workers do so to ask for
// their properties. Both load the probe and then use no device. A worker even inherits RANK from the rank
// that started it: two processes say that they are rank 0. Pure; linear in the number of processes.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {

// Those of a job, as it is when this is made; the job must outlive it.
class Bystanders {
 public:
  explicit Bystanders(const model::JobModel& job);

  // True for a process of the job that launched nothing and obtained no memory, if
  // - it has no rank and others have one, or
  // - a process on its host was at work when it started: one with the same rank, or any if it has no rank and
  //   was heard of before it ended.
  // A rank that died before its first launch and was started again is none: nobody was at work then.
  bool Has(const model::ProcessModel& process) const;

 private:
  using Workers = std::vector<const model::ProcessModel*>;  // that used a device

  bool any_rank_ = false;
  std::map<std::string, Workers> of_host_;
  std::map<std::pair<std::string, int>, Workers> of_rank_;  // and host
};

}  // namespace gpuprobe::analysis
