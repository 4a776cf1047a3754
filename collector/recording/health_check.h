// The first verdict on a running job: watches a few steps after the warm-up and says what stands out, a line
// each, while the program goes on.
//
// It reports once, early, and on steps only, from a copy of the model that is settled as if the job had
// ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "collector/model/job/job_model.h"

namespace gpuprobe::recording {

class HealthCheck {
 public:
  // `steps`: how many after the warm-up; 0: none, never speaks.
  explicit HealthCheck(uint64_t steps) : steps_(steps), said_(steps == 0) {}

  // Call some times a second. The verdict, lines with their ends, when every rank has seen enough steps;
  // once. Waits for ranks that have not reported, but not for long: they may be on other hosts. Also when the
  // command ends before that (`at_end`): then it says so.
  std::optional<std::string> Look(model::JobModel& job, bool at_end);

 private:
  uint64_t steps_;
  bool said_;
  std::optional<std::chrono::steady_clock::time_point> enough_since_;  // from the ranks that reported
};

}  // namespace gpuprobe::recording
