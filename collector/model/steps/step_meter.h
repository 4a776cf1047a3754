// Measures steps: when each began and ended on the device, where its time went, and which phases the host was
// in.
//
// Where the process's clock was set forward in a step, the step is measured as if it had not been.
#pragma once

#include <array>
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
    StepHost host;
    bool annotated = false;  // phases come from annotations
  };

  // The host was blocked in a synchronising call, in one that allocates or releases memory, or in a range
  // that is named after loading.
  void AddBlocked(uint64_t start_ns, uint64_t end_ns) { blocked_.Add(start_ns, end_ns); }
  void AddMemoryCall(uint64_t start_ns, uint64_t end_ns) { memory_.Add(start_ns, end_ns, kBetweenCallsNs); }
  void AddInput(uint64_t start_ns, uint64_t end_ns) { input_.Add(start_ns, end_ns); }
  // It was in a function of the driver with this name.
  void AddCall(uint64_t start_ns, uint64_t end_ns, uint32_t name) { calls_.Add(start_ns, end_ns, 0, name); }
  // It was seen at this moment.
  void AddSample(const HostSample& sample);
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

  static constexpr size_t kMost = 8192;  // of each

  // By start; of more than kMost the older half goes. One that begins `join_ns` after the last one's end, or
  // sooner, is joined with it.
  class HostIntervals {
   public:
    void Add(uint64_t start_ns, uint64_t end_ns, uint64_t join_ns = 0, uint32_t name = 0);
    void ForgetBefore(uint64_t time_ns);
    const std::vector<HostInterval>& all() const { return all_; }

   private:
    std::vector<HostInterval> all_;

    friend StateAccess;
    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, all_);
    }
  };

  // Looks at silences before steps' first copies to the device (StepHost).
  struct Silences {
    uint64_t looks = 0;
    uint64_t loading = 0;

    // A silence that has no sample of its own, between so many that have, is one of them.
    bool LoadNothing() const { return looks >= 5 && 10 * loading < looks; }
    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, looks, loading);
      archive.Require(loading <= looks);
    }
  };
  // Sets the record and what the host did.
  void MeasureParts(const OpenOperations& open, const PendingStep& step, Measured& measured) const;
  // The window as it would be without the clock step after `gap_ns`.
  static void MeasureWithout(const ClockStep& clock_step, uint64_t gap_ns, const StepWindow& window,
                             Measured& measured);
  void NoteHostPhases(const OpenOperations& open, const PendingStep& step,
                      const std::vector<StepPhase>& phases);

  HostIntervals blocked_;
  HostIntervals memory_;
  HostIntervals input_;
  HostIntervals calls_;
  std::vector<HostSample> samples_;  // by time
  Silences silences_;
  std::vector<ClockStep> clock_steps_;
  std::vector<HostPhases> host_phases_;
  PhaseRanges phase_ranges_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, blocked_, memory_, input_, calls_, samples_, silences_, clock_steps_, host_phases_,
                    phase_ranges_);
  }
};

}  // namespace gpuprobe::model
