// To which step and phase the report counts each piece of a device's work: what joins tables of records with
// tables of steps.
//
// The model knows it, and lets go of it; this keeps it for all of a run's processes. A piece of work is found
// by its times, which no other one on the device shares, or one of the same step does. Memory: 32 bytes for
// each. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/steps/step_record.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::tables {

class PlacedWork {
 public:
  struct Place {
    uint64_t step = 0;  // the job's number
    model::StepPhase phase = model::StepPhase::kOther;
  };

  class Process {
   public:
    // Times as the process's clock said. Nothing: it belongs to no step that was counted.
    std::optional<Place> Find(uint64_t start_ns, uint64_t end_ns) const;

   private:
    friend class PlacedWork;
    std::vector<model::PlacedOperation> operations_;  // by start, then by end
  };

  PlacedWork() = default;
  // REQUIRES: JobModel::KeepPlaced before its first process, and Finish.
  explicit PlacedWork(const model::JobModel& job);
  // nullptr: nothing is known of it.
  const Process* Of(const v1::Hello& hello) const;

 private:
  std::map<model::JobModel::ProcessKey, Process> processes_;
};

}  // namespace gpuprobe::tables
