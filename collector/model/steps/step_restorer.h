// Restores the operations of pending steps whose records were lost, with the usual step as the template.
//
// Learns the usual step from the steps as they are cut (lost_operations.h).
#pragma once

#include <cstdint>
#include <deque>

#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/lost_operations.h"
#include "collector/model/steps/open_operations.h"
#include "collector/model/steps/pending_step.h"

namespace gpuprobe::model {

class StepRestorer {
 public:
  // What is known of steps.
  struct Known {
    uint64_t usual_operations = 0;  // of a step; 0: not known
    uint64_t begin_error_ns = 0;    // of where the first pending step begins
    const Distribution& length_ns;  // of steps
  };
  // REQUIRES: a pending step; the last one is new. `all`: no more will come.
  void Restore(OpenOperations& open, std::deque<PendingStep>& pending, const Known& known, bool all);

 private:
  // `before`: the step before `last`; nullptr: there is none.
  void Learn(const OpenOperations& open, const PendingStep* before, const PendingStep& last,
             const Known& known);

  UsualStep usual_;  // once records were lost

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, usual_);
  }
};

}  // namespace gpuprobe::model
