// Where the time of one step went: interval algebra over the operations of a process.
//
// Separate from the search for steps, which only says where one begins. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// The host was blocked in a synchronising call.
struct BlockedInterval {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, start_ns, end_ns);
  }
};

struct StepWindow {
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  // In launch order. The step's own operations come first; the rest was launched after it, and counts where
  // it runs before the step's end.
  std::span<const StepOperation> operations;
  size_t own = 0;
  uint64_t previous_launch_ns = 0;           // of the last operation before the step, 0 if there was none
  std::span<const BlockedInterval> blocked;  // by start
};

// A silent host counts as waiting for input when it launched nothing for this long and for kInputPaces times
// the step's median distance between launches: a loop's own code between steps takes some tens of
// microseconds.
inline constexpr uint64_t kLeastInputWaitNs = 50'000;
inline constexpr uint64_t kInputPaces = 4;

// Everything of the record but its index and flags. `phases`: of each operation; only those of compute
// matter.
StepRecord MeasureStep(const StepWindow& window, std::span<const StepPhase> phases);

}  // namespace gpuprobe::model
