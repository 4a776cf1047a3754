// Measures steps: when each began and ended on the device, where its time went, and which phases the host was
// in.
//
// Where the process's clock was set forward in a step, the step is measured as if it had not been.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/host_phases.h"
#include "collector/model/steps/open_operations.h"
#include "collector/model/steps/pending_step.h"
#include "collector/model/steps/phase_inference.h"
#include "collector/model/steps/step_record.h"
#include "collector/model/steps/step_timeline.h"

namespace gpuprobe::model {

class StepMeter {
 public:
  struct Measured {
    StepRecord record;
    std::vector<StepPhase> phases;  // of its operations
    bool annotated = false;         // phases come from annotations
  };

  // The host was blocked in a synchronising call.
  void AddBlocked(uint64_t start_ns, uint64_t end_ns);
  // `phase`: of its name, or PhaseRanges::kNone.
  void AddRange(uint64_t id, uint64_t parent, uint64_t end_ns, uint8_t phase) {
    phase_ranges_.Add(id, parent, end_ns, phase);
  }
  // The clock was set `by_ns` forward, at some time from `from_ns`, as it was, to `to_ns`, as it is since.
  void NoteClockStep(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns);

  // Sets the times of a step. REQUIRES: no step before it is pending.
  static void SetTimes(const OpenOperations& open, PendingStep& step);
  // REQUIRES: its times are set.
  Measured Measure(const OpenOperations& open, const PendingStep& step);
  // Host phases of the steps measured since the last call.
  std::vector<HostPhases> TakeHostPhases() { return std::exchange(host_phases_, {}); }
  // Of what lies before the open operations.
  void Forget(const OpenOperations& open);

 private:
  struct ClockStep {
    uint64_t by_ns = 0;
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, by_ns, from_ns, to_ns);
    }
  };
  static constexpr size_t kMaxClockSteps = 64;
  static constexpr size_t kMaxBlocked = 8192;

  StepRecord RecordOf(const OpenOperations& open, const PendingStep& step,
                      const std::vector<StepPhase>& phases) const;
  // The window as it would be without the clock step after `gap_ns`.
  StepRecord RecordWithout(const ClockStep& clock_step, uint64_t gap_ns, const StepWindow& window,
                           const std::vector<StepPhase>& phases) const;
  void NoteHostPhases(const OpenOperations& open, const PendingStep& step,
                      const std::vector<StepPhase>& phases);

  std::vector<BlockedInterval> blocked_;  // by start
  std::vector<ClockStep> clock_steps_;
  std::vector<HostPhases> host_phases_;
  PhaseRanges phase_ranges_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, blocked_, clock_steps_, host_phases_, phase_ranges_);
  }
};

}  // namespace gpuprobe::model
