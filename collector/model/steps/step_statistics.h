// Distributions of the parts of steps: over the complete steps after the warm-up; where these are too few,
// also over the kept ones that were restored (`estimated`).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

struct StepStatistics {
  static constexpr size_t kExactLimit = 512;
  Distribution total_ns{kExactLimit};
  Distribution compute_ns{kExactLimit};
  Distribution comm_ns{kExactLimit};
  Distribution exposed_comm_ns{kExactLimit};
  Distribution overlapped_comm_ns{kExactLimit};
  Distribution copy_ns{kExactLimit};
  Distribution idle_ns{kExactLimit};
  Distribution host_bound_ns{kExactLimit};
  Distribution input_ns{kExactLimit};
  Distribution sync_ns{kExactLimit};
  Distribution memory_ns{kExactLimit};
  Distribution pause_ns{kExactLimit};
  Distribution pause_after_copy_ns{kExactLimit};
  Distribution launch_gap_ns{kExactLimit};
  Distribution unknown_ns{kExactLimit};
  // Calls in which the host was blocked in the step, and memory calls.
  Distribution blocked_ns{kExactLimit};
  Distribution blocked_calls{kExactLimit};
  Distribution memory_calls{kExactLimit};
  std::array<Distribution, kStepPhases> phase_ns;
  std::array<Distribution, kStepPhases> phase_idle_ns;  // the part of each in which nothing ran
  uint64_t incomplete = 0;  // steps in which records were lost; not in the distributions
  bool estimated = false;
  uint64_t nvtx_phases = 0;  // steps whose phases come from annotations

  StepStatistics();
  void Add(const StepRecord& record, bool nvtx_phases_known);
  void Merge(const StepStatistics& other);

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, total_ns, compute_ns, comm_ns, exposed_comm_ns, overlapped_comm_ns, copy_ns,
                    idle_ns, host_bound_ns, input_ns, sync_ns, memory_ns, pause_ns, pause_after_copy_ns,
                    launch_gap_ns, unknown_ns, blocked_ns, blocked_calls, memory_calls, phase_ns,
                    phase_idle_ns, incomplete, estimated, nvtx_phases);
  }
};

}  // namespace gpuprobe::model
