// The phases that the host was in during one step, for memory, which is allocated on the host's timeline.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// A step on the host's timeline.
struct HostPhases {
  uint64_t begin_ns = 0;  // its first launch
  uint64_t end_ns = 0;    // the next step's first launch, or its own last one
  // What is launched from then on, the first at begin_ns; later ones begin when the last launch before them
  // is over, since memory is obtained for the next launch.
  std::vector<std::pair<uint64_t, StepPhase>> changes;
  uint64_t last_launch_ns = 0;  // of it

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, begin_ns, end_ns, changes, last_launch_ns);
    for (const auto& [time_ns, phase] : changes) archive.Require(static_cast<size_t>(phase) < kStepPhases);
    if (!archive.ok()) changes.clear();
  }
};

}  // namespace gpuprobe::model
