// How high a level of memory was in each step, and in each of its phases.
//
// LevelHistory covers a whole run in a bounded number of buckets, which soon are coarser than a step; this
// class keeps single changes, but only until the step in which they happened is over. Phases are the host's,
// from the launch of a phase's first kernel on, since the host obtains the memory. Memory: kMaxChanges
// changes. Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/host_phases.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

class LevelPeaks {
 public:
  static constexpr size_t kMaxChanges = 1024;
  static constexpr size_t kExactLimit = 128;
  struct Phase {
    uint64_t steps = 0;
    uint64_t sum_bytes = 0;  // of the steps' peaks in it
    uint64_t peak_bytes = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, sum_bytes, peak_bytes);
    }
  };

  // The level is this from `time_ns` on.
  void Add(uint64_t time_ns, uint64_t level);
  // Everything that happened in the step is known. In order.
  void EndStep(const HostPhases& step);
  // The peaks of a step, where they are known already; none for phases that it did not have.
  using ByPhase = std::array<std::optional<uint64_t>, kStepPhases>;
  void AddStep(uint64_t highest, const ByPhase& by_phase);

  const Distribution& step_peak_bytes() const { return step_peak_bytes_; }
  // By StepPhase.
  const std::array<Phase, kStepPhases>& phases() const { return phases_; }

 private:
  // The highest level in [from_ns, to_ns).
  uint64_t Highest(uint64_t from_ns, uint64_t to_ns) const;

  std::deque<std::pair<uint64_t, uint64_t>> changes_;  // time, level
  Distribution step_peak_bytes_{kExactLimit};
  std::array<Phase, kStepPhases> phases_{};

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, changes_, step_peak_bytes_, phases_);
  }
};

}  // namespace gpuprobe::model
