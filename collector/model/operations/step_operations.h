// Turns a process's operations, in launch order, into what the step tracker reads: kind of work, roles, and
// tokens by which operations of different steps are equal.
#pragma once

#include <cstdint>

#include "collector/model/operations/device_work.h"
#include "collector/model/operations/operation.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/operation_tokens.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_tracker.h"
#include "collector/records/process_names.h"

namespace gpuprobe::model {

class StepOperations {
 public:
  // `tokens`: the tracker whose tokens kernels have.
  StepOperations(const ProcessNames& names, const DeviceWork& devices, StepTracker& steps,
                 StepTracker& tokens)
      : names_(names), devices_(devices), steps_(steps), tokens_(tokens) {}

  // Before anything else.
  void SetMarker(const StepMarker& marker) { marker_ = marker; }
  StepOperation Of(const Operation& operation);

 private:
  OperationTokens::Token TokenOfCall(const Operation& operation);
  // For a copy or a memset.
  OperationTokens::Token TokenOfTransfer(const Operation& operation, uint64_t direction);
  // Whether it is the call that the user's marker counts up to.
  bool EndsStep(const Operation& operation);

  const ProcessNames& names_;
  const DeviceWork& devices_;
  StepTracker& steps_;
  StepTracker& tokens_;
  StepMarker marker_;
  uint64_t marked_calls_ = 0;      // of the marker's operation, since the last one that ended a step
  uint64_t last_correlation_ = 0;  // of the last operation
  uint64_t copies_out_ns_ = 0;     // of the copies to the host that were launched last, one after the other

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(names_, devices_, steps_, tokens_, marker_), marked_calls_,
                    last_correlation_, copies_out_ns_);
  }
};

}  // namespace gpuprobe::model
